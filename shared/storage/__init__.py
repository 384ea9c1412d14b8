"""One file for each table of the kernel, its only writer."""
