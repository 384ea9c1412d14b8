"""history: what was said last in a conversation, by both sides."""

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from butlers.cli.options import HomeOption, JsonOption
from butlers.cli.terminal import as_owner, contact_of, instant, say, say_json, settings_of
from shared.display.conversation import Turn, sender_of, speaker
from shared.display.quotes import Quote, quotation
from shared.display.visible import in_line
from shared.storage import contacts, turns


def add_to(app: typer.Typer) -> None:
    """Put the command on the command line."""
    app.command()(history)


def history(
    whose: Annotated[
        str, typer.Argument(metavar="THREAD|CONTACT", help="`chat:message`, an address, or a contact's name or id.")
    ],
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Show what was said last in a conversation, by both sides, oldest first."""

    async def read() -> list[Turn]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            found = await turns.of_thread(connection, whose)
            if found:
                return found
            known = await contacts.list_contacts(connection)
            return await turns.of_contact(connection, str(contact_of(known, whose)["id"]))

    found = asyncio.run(read())
    if as_json:
        say_json({"turns": [{**asdict(turn), "from": speaker(turn), "sent_by": sender_of(turn)} for turn in found]})
        return
    if not found:
        say("Nothing was said there yet.")
    for turn in found:
        who = sender_of(turn)
        named = in_line(turn.butler or turn.contact or turn.name or turn.sender)
        kind = "" if turn.kind in {"message", "said"} else f", {turn.kind}"
        say(f"{instant(turn.written or turn.at)}  {who}{'' if who == 'owner' else f' {named}'}, {turn.channel}{kind}:")
        say(quotation(Quote(turn.text)))
