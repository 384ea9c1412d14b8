"""The settings of a process: each by its name, and how its text is parsed."""
