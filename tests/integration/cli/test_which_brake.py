"""Where several brakes are on, `butlers brake off` asks a person which, and tells a program to name one."""

import os
import subprocess
import sys

from tests.rig.cluster import ROOT

ASKS = """
from datetime import UTC, datetime
from butlers.cli import brake
row = {"contact": None, "channel": None, "owner_too": False, "until": None, "reason": None,
    "made_at": datetime(2026, 1, 2, 3, 4, tzinfo=UTC)}
rows = [row | {"id": "aaaa1111-0", "butler": None}, row | {"id": "bbbb2222-0", "butler": "greeter"}]
print("meant:", brake._which(rows))
"""


def test_a_person_is_asked() -> None:
    ours, theirs = os.openpty()
    process = subprocess.Popen([sys.executable, "-c", ASKS], stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT)
    os.close(theirs)
    os.write(ours, b"bbbb\n")
    assert process.wait(60) == 0
    said = os.read(ours, 10_000).decode()
    os.close(ours)
    assert said.index("aaaa1111") < said.index("greeter") < said.index("Which one? Its id, or all")
    assert said.rstrip().endswith("meant: bbbb")


def test_a_program_is_told_to_name_one() -> None:
    asked = [sys.executable, "-c", ASKS]
    ran = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, cwd=ROOT, check=False, timeout=60)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"2 brakes are on (aaaa1111: messages to others wait since 2026-01-02 03:04 UTC; bbbb2222: " in ran.stderr
