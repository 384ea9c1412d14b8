"""Who is calling, and what proves it."""
