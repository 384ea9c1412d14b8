"""A desk of the timekeeper over a made-up record, and its tools called as a client's calls reach them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeAlias

from jsonschema import validate

from butlers.butler import Result, ToolCall
from butlers.modules.manictime import ManicTime, components, desk_of
from butlers.modules.manictime.fixture import Record, local, write
from butlers.modules.manictime.tools.screenshots import Desk
from shared.auth.tokens import Caller

CALLER = Caller("timekeeper", "client", "j")
DAY = date(2025, 1, 15)
TWO = {"startDate": "2025-01-15", "endDate": "2025-01-16"}
Answer: TypeAlias = Mapping[str, Any]
# Whatever a client may send.
Said: TypeAlias = Any


def desk_over(folder: Path, **config: Said) -> Desk:
    return desk_of(ManicTime(data=folder, **{"timezone": "Europe/Vienna", **config}))


def recorded(folder: Path, record: Record, without: Sequence[str] = (), **config: Said) -> Desk:
    """A desk over this record, without some of its tables."""
    write(folder, record, without=without)
    return desk_over(folder, **config)


def at(hour: int, minute: int = 0, second: int = 0, day: date = DAY) -> datetime:
    return local(day, hour, minute, second)


async def result(desk: Desk, name: str, offers: Said = frozenset(), inputs: Said = None, **said: Said) -> Result:
    tool = next(one for one in components(desk).tools if one.name == name)
    made = await tool.handler(replace(ToolCall(CALLER, said), offers=offers, inputs=inputs or {}))
    if made.answer is not None:
        validate(dict(made.answer), dict(tool.output or {}))
    return made


async def asked(desk: Desk, name: str, **said: Said) -> Answer:
    """What the tool answers."""
    made = await result(desk, name, **said)
    assert made.answer is not None, made.blocks
    return made.answer


async def refused(desk: Desk, name: str, **said: Said) -> str:
    """The code of the error; its sentence and its remedy are there, in words and for a program."""
    made = await result(desk, name, **said)
    assert made.is_error, made.answer
    [block] = made.blocks
    sentence, _, program = block.text.partition("\n")  # type: ignore[union-attr]  # an error is one text
    error = json.loads(program)["error"]
    assert sentence == f"{error['message']} {error['remediation']}"
    assert error["remediation"]
    assert "Traceback" not in block.text  # type: ignore[union-attr]  # as above
    return str(error["code"])
