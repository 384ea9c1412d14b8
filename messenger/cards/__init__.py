"""What the owner is shown and asked."""
