"""What the command line is made of: its words, its options, and how it reads what it is given."""

import json
import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.main import get_command

from butlers.cli.app import FILES, build
from butlers.cli.logs import Reader
from butlers.cli.terminal import instant, one_of
from shared.errors import InvalidInput
from shared.hashing import that_begin
from shared.telemetry.logs import OwnFile

Command = Any  # of typer's own copy of click


def leaves(command: Command, name: str) -> Iterator[tuple[str, Command]]:
    if hasattr(command, "commands"):
        for word, one in command.commands.items():
            yield from leaves(one, f"{name} {word}".strip())
    else:
        yield name, command


def test_every_option_says_what_it_is_for() -> None:
    options = [
        (name, option)
        for name, one in leaves(get_command(build()), "")
        for option in one.params
        if option.opts[0].startswith("-")
    ]
    assert len(options) > len(FILES)
    assert [(name, option.opts[0]) for name, option in options if not option.help] == []


def test_a_word_alone_brings_its_command_and_all_of_them_the_whole() -> None:
    assert sorted(get_command(build()).commands) == sorted(FILES)  # type: ignore[attr-defined]
    for word in FILES:
        assert word in get_command(build([word, "--json"])).commands  # type: ignore[attr-defined]


def test_what_two_things_could_be_meant_by_means_neither() -> None:
    rows: list[dict[str, object]] = [{"id": "7a2b-1"}, {"id": "9c-2"}, {"id": "9c-3"}]
    assert one_of(rows, "7a2b", "approval") == rows[0]
    for said in ("9c", "", "QQQQ"):
        with pytest.raises(InvalidInput):
            one_of(rows, said, "approval")


def test_an_id_begins_only_as_ids_are_written() -> None:
    one = "0198a2b4-77f0-4a11-8c3e-1f2a3b4c5d6e"
    for size in range(1, len(one) + 1):
        between = that_begin(one[:size])
        assert between is not None
        assert all(str(end).startswith(one[:size]) for end in between), size
        assert between[0] <= UUID(one) <= between[1]
    for none in (
        "",
        "zz",
        f"{one}0",
        one.upper(),
        one.replace("-", ""),
        "0198a-",
        f"{{{one[:8]}",
        "urn:uuid:01",
        "_1",
        "%",
    ):
        assert that_begin(none) is None, none


def test_a_moment_has_one_form() -> None:
    at = datetime(2026, 11, 25, 14, 52, 0, 123456, timezone(timedelta(hours=1)))
    assert instant(at) == "2026-11-25T13:52:00.123Z"
    assert instant(at, "seconds") == "2026-11-25T13:52:00Z"
    assert instant(datetime.max.replace(tzinfo=UTC)).startswith("9999-12-31T23:59:59")


def logged(path: Path, *events: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"event": event}) + "\n" for event in events)


def test_each_line_of_a_log_is_read_once_and_whole_also_when_the_file_is_put_aside(tmp_path: Path) -> None:
    path, reader = tmp_path / "up.jsonl", Reader(tmp_path)
    logged(path, "one", "two")
    with path.open("a", encoding="utf-8") as file:
        file.write('not json\n{"event": "thr')
    assert [line["event"] for line in reader.lines()] == ["one", "two"]
    with path.open("a", encoding="utf-8") as file:
        file.write('ee"}\n')
    path.rename(tmp_path / "up.jsonl.1")
    logged(path, "four")
    assert [line["event"] for line in reader.lines()] == ["four", "three"]
    assert list(reader.lines()) == []
    os.truncate(tmp_path / "up.jsonl.1", 0)  # as a new file, to which the disk gives the number of one that is gone
    logged(tmp_path / "up.jsonl.1", "five")
    assert [line["event"] for line in reader.lines()] == ["five"]


def test_a_log_is_its_owners_alone_also_when_it_begins_anew(tmp_path: Path) -> None:
    file = OwnFile(tmp_path / "logs" / "up.jsonl", most=10)
    for words in ("the first line", "the second line"):
        file.handle(logging.makeLogRecord({"msg": words}))
    file.close()
    kept = sorted((tmp_path / "logs").iterdir())
    assert [path.read_text() for path in kept] == ["the second line\n", "the first line\n"]
    assert [oct(path.stat().st_mode & 0o777) for path in (*kept, kept[0].parent)] == ["0o600", "0o600", "0o700"]


def test_where_no_log_can_be_kept_nobody_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where a folder should be")
    OwnFile(tmp_path / "logs" / "up.jsonl").handle(logging.makeLogRecord({"msg": "lost"}))
