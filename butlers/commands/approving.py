"""approvals list, show, approve, deny: the owner's word from the command line."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from butlers.commands.desk import as_owner, one_of, say, say_json, settings_of, table
from shared import approvals, identity
from shared.db import Record
from shared.errors import ButlersError, InvalidInput, Misconfigured
from shared.render.telegram import visible

app = typer.Typer(help="What waits for your yes.", no_args_is_help=True)
HomeOption = Annotated[Path | None, typer.Option("--home")]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]
IdArgument = Annotated[str, typer.Argument(help="The action's id; its beginning is enough.")]
SHORT = 8
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
        say_json({"actions": [dict(row) for row in rows]})
        return
    cells = [[r["id"][:SHORT], r["status"], r["origin_butler"], r["tool_args"].get("message", "")[:60]] for r in rows]
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
        say_json(dict(row))
        return
    for key in ("id", "status", "origin_butler", "agent_summary", "requested_at", "expires_at"):
        say(f"{key}: {visible(str(row[key]))}")
    for key, value in row["tool_args"].items():
        say(f"{key}: {visible(str(value))}")


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


def _say_word(action_id: str, home_folder: Path | None, *, approve: bool, reason: str | None = None) -> None:
    from butlers.deciding import Outcome, Word, decide  # noqa: PLC0415

    settings = settings_of(None, home_folder)

    async def word() -> Outcome:
        async with as_owner(settings) as connection:
            owner = await identity.owner(connection)
            if owner is None:
                raise Misconfigured("Nobody is the owner yet.", "Run `butlers contacts add NAME --role owner`.")
            row = one_of(await approvals.list_actions(connection, None), action_id, "approval")
            return await decide(connection, Word(row["id"], approve, owner["id"], "cli", settings.approval_ttl, reason))

    outcome = asyncio.run(word())
    if outcome.code not in {"approved", "denied"}:
        raise ButlersError(outcome.text)
    say(outcome.text)
