"""The Messenger's tables, a file for each, which alone writes it."""
