"""The cards: what the owner is shown and asked."""
