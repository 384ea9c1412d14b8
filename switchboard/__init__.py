"""The Switchboard: it routes every envelope to its target."""
