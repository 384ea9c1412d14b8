"""The framework: what every daemon is."""
