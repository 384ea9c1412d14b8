"""How this process reaches PostgreSQL: pool, wake hints, clock, and who answers for the database."""
