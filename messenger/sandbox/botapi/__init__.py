"""The stand-in for Telegram's Bot API."""
