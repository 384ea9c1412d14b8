"""why: the life of one message, from who asked to which receipt."""

import asyncio
from collections.abc import Mapping
from typing import Annotated

import typer

from butlers.cli.options import HomeOption, JsonOption
from butlers.cli.terminal import as_owner, instant, say, say_json, settings_of, table
from shared.display.fates import fate
from shared.storage.history import Life, life


def add_to(app: typer.Typer) -> None:
    """Put the command on the command line."""
    app.command()(why)


def why(
    message_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="An id of the message, its approval or delivery, or a reference."),
    ],
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Explain what happened to a message."""

    async def read() -> Life:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return await life(connection, message_id)

    found = asyncio.run(read())
    steps = [(instant(step.at), step.what, step.text) for step in found.steps]
    if as_json:
        life_of = [dict(zip(("at", "what", "text"), step, strict=True)) for step in steps]
        say_json({"notification_id": found.notification_id, "status": found.status, "life": life_of})
        return
    failed = found.answer.get("error")
    error = str(failed.get("message")) if isinstance(failed, Mapping) else ""
    say(f"{found.notification_id}: {fate(found.status, error)}")
    table(("at", "what", "how"), steps)
