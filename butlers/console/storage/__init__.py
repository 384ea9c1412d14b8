"""The console's own tables."""
