"""Texts that a person is shown, with nothing of others' words hidden or forged."""
