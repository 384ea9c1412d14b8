"""The owner's web pages: a daemon and a database role of its own, no butler."""
