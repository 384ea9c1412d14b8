"""The handlers of the console's pages."""
