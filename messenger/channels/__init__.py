"""Sending, a file for each channel: prepare all but the committing byte, then finish with it."""
