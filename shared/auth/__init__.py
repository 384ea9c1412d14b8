"""Proof of who is calling: key pairs, tokens, passwords and tags."""
