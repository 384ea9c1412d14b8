"""notify: tell somebody something as one of the butlers."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated
from uuid import UUID

import typer

from butlers.cli.client import demand_butler, exchange, mint, url_of
from butlers.cli.options import FleetOption, HomeOption
from butlers.cli.terminal import as_owner, contact_of, say_json, settings_of, text_of
from butlers.daemon.discovery import ONE_COMMAND
from shared.channels import CHANNELS
from shared.config.settings import Settings
from shared.errors import Unavailable
from shared.storage import contacts


def add_to(app: typer.Typer) -> None:
    """Put this command on the command line."""
    app.command()(notify)


def notify(  # noqa: PLR0913, PLR0917  # the contract's parameters
    name: Annotated[str, typer.Option("--as", help="The butler that sends.")],
    channel: Annotated[str, typer.Option("--channel", help=f"{' or '.join(CHANNELS)}.")],
    message: Annotated[str, typer.Option("--message", help="The text; `-` reads it from standard input.")] = "",
    contact_id: Annotated[str, typer.Option("--contact-id", help="A contact, by name or id.")] = "",
    recipient: Annotated[
        str, typer.Option("--to", "--recipient", help="A contact's name or an address; else you.")
    ] = "",
    subject: Annotated[str, typer.Option("--subject", help="Of an e-mail.")] = "",
    intent: Annotated[str, typer.Option("--intent", help="send, reply or react.")] = "send",
    emoji: Annotated[str, typer.Option("--emoji", help="To react with.")] = "",
    request_context: Annotated[str, typer.Option("--request-context", help="What it answers, as JSON.")] = "",
    home_folder: HomeOption = None,
    fleet_folder: FleetOption = None,
) -> None:
    """Send a message as one of the butlers; prints the answer as JSON."""
    settings = settings_of(fleet_folder, home_folder)
    demand_butler(settings, name)
    given = {
        "channel": channel,
        "message": text_of(message),
        "contact_id": contact_id,
        "recipient": recipient,
        "subject": subject,
        "intent": intent,
        "emoji": emoji,
        "request_context": request_context,
    }
    answer = asyncio.run(_call_notify(settings, name, {key: value for key, value in given.items() if value}))
    say_json(answer)
    if answer.get("status") == "error":
        raise typer.Exit(1)


async def _call_notify(settings: Settings, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
    """Call the butler as any client without MCP would."""
    if said := arguments.get("contact_id"):
        arguments = {**arguments, "contact_id": await _contact(settings, str(said))}
    url = await url_of(settings, name)
    bearer = await mint(settings, name, ONE_COMMAND)
    answer = await exchange(f"{url}/notify", given=arguments, bearer=bearer)
    if "status" not in answer.told:
        raise Unavailable(f"{name} gave no answer of a butler at {url} ({answer.status}).", "Restart it.")
    return answer.told


async def _contact(settings: Settings, said: str) -> str:
    """Return the id of the contact meant by a name or the beginning of an id; a whole id is left as it is."""
    with suppress(ValueError):
        return str(UUID(said))
    async with as_owner(settings) as connection:
        return str(contact_of(await contacts.list_contacts(connection), said)["id"])
