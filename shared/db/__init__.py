"""Access to PostgreSQL: pool, wake hints, clock, witness, and the proof of who answers for the database."""
