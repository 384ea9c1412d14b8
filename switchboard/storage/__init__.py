"""The Switchboard's tables, a file for each, its only writer."""
