"""How and when a message goes out; sole holder of channel credentials."""
