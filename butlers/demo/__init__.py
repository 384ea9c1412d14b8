"""The fleet a newcomer gets."""
