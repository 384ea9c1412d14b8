"""What comes in from the channels: presses, messages and bounces."""
