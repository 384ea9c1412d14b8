"""The schema, as one linear chain of raw SQL."""
