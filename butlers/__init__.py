"""The framework that every daemon is built on."""
