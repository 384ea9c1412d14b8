"""Runtimes: the programs that think for a butler, one child process for each session."""
