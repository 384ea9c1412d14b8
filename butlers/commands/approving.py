"""approvals list, show, approve, deny, edit: the owner's word from the command line."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from butlers.commands.desk import as_owner, one_of, owner_id, say, say_json, settings_of, table
from butlers.commands.options import SHORT, HomeOption, JsonOption
from shared import approvals
from shared.config import Settings
from shared.db import Connection, Record
from shared.errors import ButlersError, InvalidInput
from shared.keys import short
from shared.render.visible import in_line, quoted, said

if TYPE_CHECKING:  # keeps --help quick
    from butlers.deciding import Outcome

app = typer.Typer(help="What waits for your yes.", no_args_is_help=True)
IdArgument = Annotated[str, typer.Argument(help="The action's id; its beginning is enough.")]
STATUSES = ("pending", "approved", "denied", "expired", "cancelled", "executing", "executed", "failed", "uncertain")


async def _read(home_folder: Path | None, status: str | None) -> list[Record]:
    async with as_owner(settings_of(None, home_folder)) as connection:
        return await approvals.list_actions(connection, status)


@app.command("list")
def list_all(
    status: Annotated[str | None, typer.Option("--status", help="pending, approved, denied, ...")] = None,
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Pending actions, oldest first."""
    if status not in {None, *STATUSES}:
        raise InvalidInput(f"There is no status `{status}`.", f"Known are: {', '.join(STATUSES)}.")
    rows = asyncio.run(_read(home_folder, status))
    if as_json:
        say_json({"actions": [{**row, "tool_args": _args(row)} for row in rows]})
        return
    cells = [[r["id"][:SHORT], r["status"], r["origin_butler"], _message(r)[:60]] for r in rows]
    table(("id", "status", "butler", "message"), cells)


@app.command()
def show(
    action_id: IdArgument,
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """One pending action, with its whole text."""
    row = one_of(asyncio.run(_read(home_folder, None)), action_id, "approval")
    if as_json:
        say_json({**row, "tool_args": _args(row)})
        return
    for key in ("id", "status", "origin_butler", "requested_at", "expires_at"):
        say(f"{key}: {in_line(str(row[key]))}")
    say(f"agent_summary: {said(row['agent_summary'])}")
    for key, value in (_args(row) or {}).items():
        if key != "message":
            say(f"{key}: {in_line(str(value))}")
    message = _message(row)
    say(f"length: {len(message)} characters, hash {in_line(short(row['content_sha']))}\nmessage:\n{quoted(message)}")


@app.command()
def approve(action_id: IdArgument, home_folder: HomeOption = None) -> None:
    """Say yes to exactly this message."""
    _say_word(action_id, home_folder, approve=True)


@app.command()
def deny(
    action_id: IdArgument,
    reason: Annotated[str | None, typer.Option("--reason")] = None,
    home_folder: HomeOption = None,
) -> None:
    """Say no; the butler is told the reason."""
    _say_word(action_id, home_folder, approve=False, reason=reason)


@app.command()
def edit(
    action_id: IdArgument,
    message: Annotated[str, typer.Option("--message", help="The text that takes the place of the butler's.")],
    home_folder: HomeOption = None,
) -> None:
    """Put other words in its place; it waits anew for your yes, and the butler is told what was sent."""
    from butlers.deciding import Edit, edit  # noqa: PLC0415  # keeps --help quick

    def change(connection: Connection, row: Record, by: str, settings: Settings) -> "Awaitable[Outcome]":
        return edit(connection, Edit(row["id"], message, by, "cli", settings.approval_ttl))

    _carry_out(action_id, home_folder, change)


def _say_word(action_id: str, home_folder: Path | None, *, approve: bool, reason: str | None = None) -> None:
    from butlers.deciding import Word, decide  # noqa: PLC0415  # keeps --help quick

    def word(connection: Connection, row: Record, by: str, settings: Settings) -> "Awaitable[Outcome]":
        return decide(connection, Word(row["id"], approve, by, "cli", settings.approval_ttl, reason))

    _carry_out(action_id, home_folder, word)


def _carry_out(
    action_id: str,
    home_folder: Path | None,
    said: "Callable[[Connection, Record, str, Settings], Awaitable[Outcome]]",
) -> None:
    settings = settings_of(None, home_folder)

    async def carry() -> "Outcome":
        async with as_owner(settings) as connection:
            by = await owner_id(connection)
            row = one_of(await approvals.list_actions(connection, None), action_id, "approval")
            return await said(connection, row, by, settings)

    outcome = asyncio.run(carry())
    if outcome.code not in {"approved", "denied", "edited"}:
        raise ButlersError(outcome.text)
    say(outcome.text)


def _args(row: Record) -> Mapping[str, object] | None:
    """The call as it would go out: the notification's own words before what is kept with the question.

    None where that cannot be read.
    """
    from shared.readable import question  # noqa: PLC0415  # keeps --help quick

    found, kept = question(row), row["tool_args"]
    return None if found is None else {**(kept if isinstance(kept, Mapping) else {}), **found}


def _message(row: Record) -> str:
    from shared.readable import shown  # noqa: PLC0415  # as above

    return str(shown(_args(row), row["id"]).get("message", ""))
