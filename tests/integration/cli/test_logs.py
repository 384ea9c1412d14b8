"""What a daemon logs is text for a person on a terminal, and JSON lines wherever else it goes."""

import json
import os
import subprocess
import sys

from tests.rig.cluster import ROOT

SAYS = """
import os, shared.telemetry.logs
from butlers.cli.serve import _log
from shared.config.settings import Settings
_log(Settings.from_env({"BUTLERS_HOME": "/nowhere"}), "messenger")
shared.telemetry.logs.logger("x").info("delivery_ended", state="sent", odd="a\x1b[2Jb")
"""


def logged(stderr: int) -> None:
    subprocess.run([sys.executable, "-c", SAYS], stderr=stderr, cwd=ROOT, check=True, timeout=60)


def test_a_terminal_gets_text_that_it_obeys_nothing_of() -> None:
    reader, writer = os.openpty()
    logged(writer)
    said = os.read(reader, 4000).decode()
    os.close(writer)
    os.close(reader)
    assert "delivery_ended" in said
    assert "state=sent" in said
    assert "\x1b" not in said
    assert "<U+001B>" in said
    assert not said.lstrip().startswith("{")


def test_a_pipe_gets_json() -> None:
    reader, writer = os.pipe()
    logged(writer)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as said:
        [line] = map(json.loads, said)
    assert (line["event"], line["state"], line["daemon"]) == ("delivery_ended", "sent", "messenger")
