"""Sessions: what a butler is asked waits in rows, is run by its runtime under a lease, and ends before everybody."""
