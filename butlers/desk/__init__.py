"""The desk: what stands on the owner's own screen, a popup to answer in and notifications with buttons."""
