"""The owner's web pages: a daemon with a database role of its own, but no butler."""
