"""sessions list, show, stop: the runs of the butlers' agents."""

import asyncio
from datetime import datetime
from typing import Annotated, Final

import typer

from butlers.cli.options import SHORT, HomeOption, JsonOption
from butlers.cli.terminal import as_owner, beginning, each, instant, say, say_json, say_lines, settings_of, table
from shared.db.pool import Record
from shared.display.visible import quoted
from shared.errors import ButlersError, InvalidInput
from shared.storage import session_list, session_steps, sessions
from shared.storage.session_list import as_object

app = typer.Typer(help="What the butlers' agents did and do.", no_args_is_help=True)
SessionArgument = Annotated[str, typer.Argument(metavar="ID", help="The id or the beginning of it.")]
SessionsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="One or several.")]
MOST: Final = 200


def add_to(line: typer.Typer) -> None:
    """Put these commands on the command line."""
    line.add_typer(app, name="sessions")


@app.command("list")
def list_all(
    butler: Annotated[str | None, typer.Option("--butler", help="Only this one's.")] = None,
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """List the last 200 sessions: what runs and waits first, then the newest."""

    async def read() -> list[Record]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return list(await session_list.newest(connection, butler, MOST))

    rows = asyncio.run(read())
    if as_json:
        say_json({"sessions": [as_object(row) for row in rows]})
        return
    cells = [
        [
            row["id"][:SHORT],
            row["butler"],
            session_list.words_of(row),
            instant(row["began_at"] or row["created_at"], "seconds"),
            row["steps"],
            row["cause"],
            beginning(row["prompt"] or ""),
        ]
        for row in rows
    ]
    table(("id", "butler", "status", "since", "calls", "cause", "prompt"), cells, "There are no sessions.")


@app.command()
def show(
    session_id: SessionArgument,
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Show one session: what it was asked, what it called, said and used, and how it ended."""

    async def read() -> tuple[Record | None, list[Record]]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            found = await session_list.id_of(connection, session_id)
            return await session_list.one(connection, found), list(await session_steps.of(connection, found))

    row, steps = asyncio.run(read())
    if row is None:
        raise InvalidInput("This session is gone.", "`butlers sessions list` shows those that are kept.")
    if as_json:
        say_json({**as_object(row), "steps": [dict(step) for step in steps]})
        return
    for name, value in as_object(row).items():
        if name not in {"prompt", "said"}:
            say(f"{name}: {_plain(session_list.words_of(row) if name == 'status' else value)}")
    say_lines(f"prompt:\n{quoted(row['prompt'] or '')}\nsaid:\n{quoted(row['said'])}\n")
    table(
        ("step", "tool", "answer", "began at"),
        [(s["seq"], s["tool"], s["status"], _plain(s["began_at"])) for s in steps],
    )


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{amount} {what}" for what, amount in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return instant(value, "seconds") if isinstance(value, datetime) else "" if value is None else str(value)


@app.command()
def stop(session_ids: SessionsArgument, home_folder: HomeOption = None) -> None:
    """Stop a session that runs or waits, or several; its process is ended."""

    async def ask(one: str) -> bool:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return await sessions.ask_to_stop(connection, await session_list.id_of(connection, one))

    def stop_one(one: str) -> None:
        if not asyncio.run(ask(one)):
            raise ButlersError("This session has ended.", "`butlers sessions show` says how.")
        say("It is being stopped.")

    each(session_ids, stop_one)
