"""The ground every daemon stands on; imports nothing of ours."""
