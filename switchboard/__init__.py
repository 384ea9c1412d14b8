"""Who gets an envelope."""
