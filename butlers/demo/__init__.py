"""The demo fleet, which is served where no other is given."""
