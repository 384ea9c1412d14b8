"""What is set from outside: the settings by name, and how their text is read."""
