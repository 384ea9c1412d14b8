"""What comes in from the channels."""
