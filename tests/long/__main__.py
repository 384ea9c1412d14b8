"""`python -m tests.long` shows the recorded figures, `python -m tests.long --record` writes them into the docs."""

import json
import sys

from tests.long.recording import record, table
from tests.long.state import FIGURES, PARTS, kept


def main(arguments: list[str]) -> int:
    """The exit code; 1 where no long campaign has been done here."""
    if arguments not in ([], ["--record"]):
        print("Say `python -m tests.long`, or `python -m tests.long --record`.")
        return 2
    if not FIGURES.exists():
        print(f"{len(kept())} of {PARTS} parts are done here. Run `make long`, which goes on where it stands.")
        return 1
    print(record() if arguments else table(json.loads(FIGURES.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
