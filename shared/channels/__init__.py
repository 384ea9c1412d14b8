"""The channels, without sending: addresses, wires, rendering, realms."""
