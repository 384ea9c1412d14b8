"""What the pages show, read by SELECT only."""
