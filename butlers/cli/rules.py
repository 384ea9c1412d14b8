"""rules list, add, revoke, test: what may leave without asking the owner, and what may never."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from butlers.cli.options import SHORT, HomeOption, JsonOption
from butlers.cli.terminal import (
    as_owner,
    beginning,
    contact_of,
    each,
    instant,
    one_of,
    owner_id,
    remark,
    say,
    say_json,
    settings_of,
    table,
)
from butlers.daemon import discovery
from shared.channels import CHANNELS
from shared.config.settings import stated_duration
from shared.db.pool import Connection, Record
from shared.display.fates import STATUS
from shared.errors import ButlersError, InvalidInput
from shared.gate.backtest import Past
from shared.model import Decision
from shared.storage import contacts, rules
from shared.storage.rules import NewRule

app = typer.Typer(help="Which messages are sent without asking you, and which are blocked.", no_args_is_help=True)
DenyOption = Annotated[bool, typer.Option("--deny", help="Always block, instead of allow without asking.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The rule's id, or the beginning of it.")]
IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="One id or several, or what they begin with.")]


def add_to(line: typer.Typer) -> None:
    """Put these commands on the command line."""
    line.add_typer(app, name="rules")


@app.command("list")
def list_all(
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """List rules, oldest first."""

    async def read() -> list[Record]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return await rules.list_rules(connection)

    rows = asyncio.run(read())
    if as_json:
        say_json({"rules": [dict(row) for row in rows]})
        return
    cells = [
        [r["id"][:SHORT], _is_active(r), r["effect"], r["origin_butler"] or "any", _whom(r), _uses(r)] for r in rows
    ]
    nothing = "There are no rules: every message to others needs your approval."
    table(("id", "active", "effect", "butler", "to", "used"), cells, nothing)


def _is_active(row: Record) -> str:
    if not row["active"]:
        return "no"
    return "elsewhere" if row["elsewhere"] else "yes"


def _whom(row: Record) -> str:
    pinned = dict(row["arg_constraints"])
    if row["tool_name"] != "notify":
        return ", ".join([row["tool_name"], *(f"{name} {value}" for name, value in sorted(pinned.items()))])
    who = row["contact"] or pinned.get("contact_id") or pinned.get("recipient")
    more = [f"{name} {pinned[name]}" for name in ("channel", "intent") if name in pinned]
    return ", ".join([str(who), *more])


def _uses(row: Record) -> str:
    used = f"{row['used']} of {row['max_uses']}" if row["max_uses"] else str(row["used"])
    return f"{used}, {row['max_per_day']} a day" if row["max_per_day"] else used


@app.command()
def add(  # noqa: PLR0913, PLR0917  # a rule's eight options, as options
    contact_id: Annotated[
        str | None, typer.Option("--to", "--contact-id", help="A contact's name, or the beginning of its id.")
    ] = None,
    recipient: Annotated[str | None, typer.Option("--recipient", help="Or an address.")] = None,
    channel: Annotated[str | None, typer.Option("--channel", help=f"{' or '.join(CHANNELS)}; default: all.")] = None,
    intent: Annotated[str | None, typer.Option("--intent", help="send, reply or react; default: all.")] = None,
    butler: Annotated[str | None, typer.Option("--butler", help="Only this butler.")] = None,
    deny: DenyOption = False,  # noqa: FBT002  # typer's way
    max_uses: Annotated[int | None, typer.Option("--max-uses", min=1, help="It ends after so many messages.")] = None,
    max_per_day: Annotated[int | None, typer.Option("--max-per-day", min=1, help="So many in any 24 hours.")] = None,
    expires: Annotated[str | None, typer.Option("--expires", help="How long it is valid, such as 30d.")] = None,
    tool: Annotated[str | None, typer.Option("--tool", help="For calls of this tool, in place of messages.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="NAME=VALUE", help="With --tool: only this argument."),
    ] = None,
    home_folder: HomeOption = None,
) -> None:
    """Create a rule; prints its id."""
    lasts = None if expires is None else stated_duration(expires)

    async def write() -> tuple[str, Record | None]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            if tool is not None or where:
                of_messages = any((contact_id, recipient, channel, intent))
                pinned = await _arguments(connection, tool, where or [], of_messages=of_messages)
            else:
                contact = await _contact(connection, contact_id) if contact_id else None
                pinned = rules.constraints_of(contact_id=contact, recipient=recipient, channel=channel, intent=intent)
            named = await discovery.demand_known(connection, butler)
            effect: Literal["allow", "deny"] = "deny" if deny else "allow"
            new = NewRule(effect, pinned, named, max_uses, max_per_day, lasts, tool=tool or "notify")
            made = await rules.add(connection, new, await owner_id(connection))
            return made, await rules.one(connection, made)

    made, row = asyncio.run(write())
    say(made)
    if row is not None and row["expires_at"] is not None:
        remark(f"It is valid until {instant(row['expires_at'], 'seconds')}.")


async def _arguments(
    connection: Connection, tool: str | None, where: Sequence[str], *, of_messages: bool
) -> dict[str, str]:
    """Return what a rule about a tool pins; raise InvalidInput if it says nothing clear."""
    if tool is None or of_messages:
        raise InvalidInput("A rule is about messages or about a tool.", "Give --where with --tool, and nothing else.")
    await discovery.demand_tool(connection, tool)
    return rules.arguments_of(where)


async def _contact(connection: Connection, beginning: str) -> str:
    return str(contact_of(await contacts.list_contacts(connection), beginning)["id"])


@app.command()
def revoke(rule_ids: IdsArgument, home_folder: HomeOption = None) -> None:
    """Revoke a rule, or several; it applies to no further message."""
    each(rule_ids, lambda one: _revoke(one, home_folder))


def _revoke(rule_id: str, home_folder: Path | None) -> None:

    async def write() -> bool:
        async with as_owner(settings_of(None, home_folder)) as connection:
            row = one_of(await rules.list_rules(connection), rule_id, "rule")
            return await rules.revoke(connection, row["id"], await owner_id(connection))

    if not asyncio.run(write()):
        raise ButlersError("It is already revoked.")
    say("Revoked.")


@app.command("test")
def try_out(
    rule_id: IdArgument,
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Preview what this rule alone would have done with the last 1,000 messages."""
    from shared.gate import backtest  # noqa: PLC0415  # keeps --help quick

    async def read() -> list[tuple[Past, Decision]]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            row = one_of(await rules.list_rules(connection), rule_id, "rule")
            if row["tool_name"] != "notify":
                raise InvalidInput("Only rules about messages can be tried on the past.", "Read it with `rules list`.")
            return list(backtest.would_have(rules.rule_of(row), await backtest.actions(connection)))

    found = asyncio.run(read())
    if as_json:
        lines = [_line(one, decision) for one, decision in found]
        say_json({"counts": backtest.tally(found), "lines": lines})
        return
    say(f"Matches {len(found)} of the last 1,000 messages: {backtest.tallied(found)}.")
    if found:
        lines = [
            _line(one, decision) | {"status": STATUS[one.status], "verdict": rules.VERDICTS[decision.verdict]}
            for one, decision in found
        ]
        table(("message", "at", "outcome", "with this rule", "text"), [list(line.values()) for line in lines])


def _line(one: Past, decision: Decision) -> dict[str, object]:
    return {
        "notification_id": one.notification_id,
        "at": instant(one.at),
        "status": one.status,
        "verdict": decision.verdict,
        "message": beginning(one.message),
    }
