"""The card about a question of a butler to the owner."""
