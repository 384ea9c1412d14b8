"""What a mail says, read by pure functions that believe nothing of it."""
