"""The stand-in for a mail server."""
