"""The cards about strangers: what one wrote, and that they write more than is kept."""
