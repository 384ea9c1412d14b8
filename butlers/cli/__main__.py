"""The command line by `python -m butlers.cli`."""

from butlers.cli import main

main()
