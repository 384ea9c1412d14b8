"""Modules: sets of tools a butler may be given, how they are found, and what becomes of one that breaks."""
