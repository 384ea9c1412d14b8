"""The cards about calls of gated tools."""
