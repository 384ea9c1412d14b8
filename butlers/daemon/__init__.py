"""A butler as a served process."""
