"""A local stand-in for Telegram's Bot API and for a mail server, with pages a person can use."""
