"""The stages that decide whether a message may leave, wherever that is asked."""
