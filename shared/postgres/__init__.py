"""The embedded PostgreSQL server: its files, its processes, and how it is reached."""
