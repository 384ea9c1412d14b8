"""What a channel is, without sending: addresses, wires, rendering, realms."""
