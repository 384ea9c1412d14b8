"""schedules list, remove: what a butler does by the clock, and an end to what it has set itself."""

import asyncio
from typing import Annotated

import typer

from butlers.cli.options import HomeOption, JsonOption
from butlers.cli.terminal import as_owner, beginning, each, instant, say, say_json, settings_of, table
from shared.db.pool import Record
from shared.display.schedule import what_it_does
from shared.errors import InvalidInput
from shared.storage import schedules

app = typer.Typer(help="What the butlers do by the clock.", no_args_is_help=True)
ButlerArgument = Annotated[str, typer.Argument(metavar="BUTLER")]
NamesArgument = Annotated[list[str], typer.Argument(metavar="NAME...", help="One or several.")]


def add_to(line: typer.Typer) -> None:
    """Put these commands on the command line."""
    line.add_typer(app, name="schedules")


@app.command("list")
def list_all(
    butler: ButlerArgument,
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """List a butler's schedules: what is due first comes first."""

    async def read() -> list[Record]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return await schedules.of(connection, butler)

    rows = asyncio.run(read())
    if as_json:
        say_json({"schedules": [dict(row) for row in rows]})
        return
    cells = [
        [
            row["name"],
            "butler.toml" if row["source"] == "file" else "itself",
            row["cron"] or "once",
            instant(row["next_due_at"], "seconds") if row["next_due_at"] else "never again",
            row["last_status"] or "",
            beginning(what_it_does(row["prompt"], row["tool"], row["arguments"])),
        ]
        for row in rows
    ]
    table(("name", "set by", "due", "next", "last", "what"), cells, f"{butler} has no schedules.")


@app.command()
def remove(butler: ButlerArgument, names: NamesArgument, home_folder: HomeOption = None) -> None:
    """Remove schedules that a butler has set itself, such as its reminders."""

    async def take(name: str) -> tuple[bool, str | None]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return await schedules.remove_own(connection, butler, name), await schedules.source_of(
                connection, butler, name
            )

    def remove_one(name: str) -> None:
        removed, source = asyncio.run(take(name))
        if source == "file":
            raise InvalidInput("This schedule is yours, in butler.toml.", "Remove it there, and run `butlers reload`.")
        if not removed:
            raise InvalidInput(
                f"{butler} has no schedule of that name.", "`butlers schedules list BUTLER` shows its schedules."
            )
        say("Removed.")

    each(names, remove_one)
