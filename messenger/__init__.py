"""The Messenger: it decides how and when a message goes out, and is the sole holder of channel credentials."""
