"""What a person is shown, with nothing of others hidden or forged."""
