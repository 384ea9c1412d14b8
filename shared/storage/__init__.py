"""The rows of the kernel: one file for each table, which is its only writer."""
