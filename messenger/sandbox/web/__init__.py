"""The sandbox's own pages and API."""
