"""Stages 7 to 10 of one delivery under a lease."""
