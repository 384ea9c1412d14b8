"""Loops over rows that nobody holds."""
