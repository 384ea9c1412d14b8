"""The rows of those cards that have a file of their own: which are missing, and which are over."""
