"""deliveries list, show, retry, resolve: what became of messages, and the owner's word on uncertain ones."""

import asyncio
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from butlers.cli.options import SHORT, HomeOption, JsonOption
from butlers.cli.terminal import (
    as_login,
    as_owner,
    beginning,
    each,
    instant,
    owner_id,
    say,
    say_json,
    say_lines,
    settings_of,
    table,
)
from shared.auth import keystore
from shared.channels.realms import SANDBOX
from shared.db.pool import Connection, Record, transaction
from shared.display.fates import DELIVERY
from shared.display.visible import quoted
from shared.errors import ButlersError, InvalidInput
from shared.hashing import reference
from shared.model import STATUSES
from shared.storage import deliveries, resolutions
from shared.storage.deliveries import Shown
from shared.storage.resolutions import Outcome, Resolution, Word

app = typer.Typer(help="Outgoing messages and their outcome.", no_args_is_help=True)
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id or the beginning of it, or the reference.")]
IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="One or several, each as for `show`.")]
MOST: Final = 200
ONLY_UNCONFIRMED: Final = "Only deliveries that are unconfirmed can be resolved."
ONLY_UNSENT: Final = "Only failed or expired deliveries can be retried."
# How long to wait for a running Messenger to carry the word out.
WAIT_SECONDS: Final = 5.0


def add_to(line: typer.Typer) -> None:
    """Put these commands on the command line."""
    line.add_typer(app, name="deliveries")


@app.command("list")
def list_all(
    status: Annotated[str | None, typer.Option("--status", help="uncertain, failed, sent, ...")] = None,
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """List the last 200 deliveries, newest first."""
    if status not in {None, *STATUSES}:
        raise InvalidInput(f"Unknown status `{status}`.", f"Choose from: {', '.join(STATUSES)}.")

    async def read() -> list[Record]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return await deliveries.latest(connection, status, MOST)

    rows = asyncio.run(read())
    if as_json:
        say_json({"deliveries": [deliveries.as_object(row) for row in rows]})
        return
    cells = [
        [
            r["id"][:SHORT],
            reference(r["id"]),
            DELIVERY[r["status"]],
            r["origin_butler"],
            _to(r),
            beginning(r["message"] or r["emoji"] or ""),
        ]
        for r in rows
    ]
    nothing = "There are no such deliveries." if status else "Nothing was sent yet."
    table(("id", "ref", "status", "butler", "to", "message"), cells, nothing)


def _to(row: Record) -> str:
    played = ", sandbox" if row["realm"] == SANDBOX else ""
    return f"{row['contact'] or 'unknown'} ({row['address']}) by {row['channel']}{played}"


@app.command()
def show(
    delivery_id: IdArgument,
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Show one delivery with its parts and every attempt."""

    async def read() -> Shown:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return await deliveries.one(connection, await deliveries.find(connection, delivery_id))

    found = asyncio.run(read())
    if as_json:
        lists = {"parts": [dict(row) for row in found.parts], "attempts": [dict(row) for row in found.attempts]}
        say_json({**deliveries.as_object(found.delivery), **lists})
        return
    for name, value in deliveries.as_object(found.delivery).items():
        if name != "message":
            shown = DELIVERY[found.delivery["status"]] if name == "status" else value
            say(f"{name}: {_plain(shown)}")
    say_lines(f"message:\n{quoted(found.delivery['message'] or '')}\n")
    table(("part", "status", "receipt"), [(p["n"], p["status"], p["provider_id"] or "") for p in found.parts])
    say("")
    table(("part", "attempt", "sent at", "ended", "how"), [_tried(row) for row in found.attempts])


def _plain(value: object) -> str:
    return instant(value, "seconds") if isinstance(value, datetime) else "" if value is None else str(value)


def _tried(row: Record) -> tuple[object, ...]:
    at = [_plain(row[name]) for name in ("marked_at", "ended_at")]
    return row["n"], row["attempt"], *at, f"{row['outcome'] or 'in progress'} {row['detail'] or ''}"


@app.command()
def retry(delivery_ids: IdsArgument, home_folder: HomeOption = None) -> None:
    """Retry a failed or expired delivery, or several, if still allowed."""
    each(delivery_ids, lambda one: _say_word(one, "retry", resolutions.UNSENT, home_folder))


@app.command()
def resolve(
    delivery_id: IdArgument,
    word: Annotated[str, typer.Argument(metavar="arrived|again|leave", help="What you know, or want.")],
    home_folder: HomeOption = None,
) -> None:
    """Resolve an unconfirmed delivery: it arrived, send it again, or leave it."""
    chosen = next((one for one in resolutions.ANSWERS if one == word), None)
    if chosen is None:
        raise InvalidInput(f"`{word}` is not a valid answer.", "Use arrived, again or leave.")
    _say_word(delivery_id, chosen, ("uncertain",), home_folder)


def _say_word(delivery_id: str, word: Word, fits: tuple[str, ...], home_folder: Path | None) -> None:
    settings = settings_of(None, home_folder)

    async def speak() -> Outcome | None:
        async with as_login(settings, keystore.OWNER) as connection:
            async with transaction(connection):
                made = await _written(connection, delivery_id, word, fits)
            return await _carried_out(connection, made)

    outcome = asyncio.run(speak())
    if outcome == "late":
        raise ButlersError(resolutions.LATE)
    say(resolutions.said(word, outcome))


async def _written(connection: Connection, delivery_id: str, word: Word, fits: tuple[str, ...]) -> str:
    found = (await deliveries.one(connection, await deliveries.find(connection, delivery_id))).delivery
    if found["status"] not in fits:
        only = ONLY_UNSENT if word == "retry" else ONLY_UNCONFIRMED
        raise ButlersError(f"The outcome of this delivery is: {DELIVERY[found['status']]}.", only)
    by = await owner_id(connection)
    return await resolutions.ask(connection, Resolution(found["id"], found["attempt"], word, by, "cli"))


async def _carried_out(connection: Connection, resolution_id: str) -> Outcome | None:
    until = time.monotonic() + WAIT_SECONDS
    while True:
        outcome = await resolutions.outcome(connection, resolution_id)
        if outcome is not None or time.monotonic() > until:
            return outcome
        await asyncio.sleep(0.1)
