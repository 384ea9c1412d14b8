"""The commands by what they are about; each is a thin edge over the rooms that do the work."""
