"""The Switchboard's tables, a file for each, which is its only writer."""
