"""The core tools every butler has."""
