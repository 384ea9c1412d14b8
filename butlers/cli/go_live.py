"""go-live: from the sandbox to your own bot and mail account, with the contacts and rules that you take along.

Everything is asked before anything is written, and a second run asks only for what is missing. It decides nothing that
waits: what was asked in the sandbox ends there.
"""

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from butlers.cli.options import SHORT, HomeOption
from butlers.cli.pair import bot_name
from butlers.cli.terminal import (
    MESSENGER,
    answer_to,
    as_owner,
    contact_of,
    credentials_in,
    one_of,
    owner_id,
    say,
    settings_of,
)
from shared.addresses import parse_recipient
from shared.auth import keystore
from shared.channels import CHANNELS, realms
from shared.config.settings import Settings
from shared.db.pool import Connection, Record
from shared.errors import InvalidInput, Misconfigured
from shared.storage import contacts, pairings, rules
from shared.storage.rules import NewRule

STAYS: Final = (
    "What your butlers set themselves in the sandbox stays, such as schedules: remove on each butler's page in the "
    "console what you do not want."
)
# What is kept, and how a person is asked for it; what is secret is not shown while it is typed.
QUESTIONS: Final[Mapping[str, tuple[str, bool]]] = {
    "BUTLERS_TELEGRAM_TOKEN": ("Your bot's token from @BotFather (Enter: Telegram stays in the sandbox):", True),
    "BUTLERS_SMTP_URL": ("Your mail server, as smtps://user:password@host (Enter: mail stays in the sandbox):", True),
    "BUTLERS_EMAIL_FROM": ("The address your butlers' mails come from, and to which you write to them:", False),
    "BUTLERS_IMAP_URL": ("Its mailbox, as imaps://user:password@host, to read what comes in (Enter: none):", True),
}
# Where the owner is told and found.
MAIL: Final = "email"
PAIRED: Final = "telegram"
MAILBOX: Final = "BUTLERS_IMAP_URL"
OF_MAIL: Final = ("BUTLERS_EMAIL_FROM", MAILBOX)


@dataclass(frozen=True, slots=True)
class House:
    """What stands in the sandbox, by channel the realm that is live from now on, and which were live before."""

    people: Sequence[Record]
    rules: Sequence[Record]
    live: Mapping[str, str]
    before: AbstractSet[str]


def add_to(app: typer.Typer) -> None:
    """Put this command on the command line."""
    app.command("go-live")(go_live)


def go_live(  # noqa: PLR0913, PLR0917  # an answer each, as options
    telegram_token: Annotated[
        Path | None, typer.Option("--telegram-token-file", help="A file with your bot's token.")
    ] = None,
    smtp_url: Annotated[
        Path | None, typer.Option("--smtp-url-file", help="A file with smtps://user:password@host.")
    ] = None,
    email_from: Annotated[str | None, typer.Option("--email-from", help="The address of your butlers' mails.")] = None,
    imap_url: Annotated[
        Path | None, typer.Option("--imap-url-file", help="A file with imaps://user:password@host.")
    ] = None,
    owner_email: Annotated[str | None, typer.Option("--owner-email", help="Where mails to you go.")] = None,
    take_contacts: Annotated[
        str | None, typer.Option("--contacts", help="Whom to take along: all, none, or names, with commas.")
    ] = None,
    take_rules: Annotated[
        str | None, typer.Option("--rules", help="Which rules to take along: all, none, or ids, with commas.")
    ] = None,
    home_folder: HomeOption = None,
) -> None:
    """Leave the sandbox: connect your bot and mail account, and take contacts and rules along."""
    files = {"BUTLERS_TELEGRAM_TOKEN": telegram_token, "BUTLERS_SMTP_URL": smtp_url, "BUTLERS_IMAP_URL": imap_url}
    given = {f"{name}_FILE": str(path) for name, path in files.items() if path is not None}
    settings = _of_this_account(settings_of(None, home_folder), given)
    kept = _answers(settings, {**given, **({"BUTLERS_EMAIL_FROM": email_from} if email_from else {})})
    live = _with(settings, kept)
    bot = asyncio.run(bot_name(live.telegram_base_url, live.telegram_token.reveal())) if live.telegram_token else ""
    house = asyncio.run(_read(settings, live))
    address = _owners_address(house, owner_email)
    people = _chosen_people(house, take_contacts)
    along = _chosen_rules(house, take_rules)
    code = asyncio.run(_carry_out(settings, house, address, people, along, kept))
    say("Restart `butlers up`: from then on messages are sent for real." if kept else "Everything is set up.")
    say(STAYS)
    if code and bot:
        say(f"Then, within {live.timings.pairing // timedelta(minutes=1)} minutes, open this and press Start:")
        say(f"https://t.me/{bot}?start={code}")
    elif "BUTLERS_TELEGRAM_TOKEN" in kept:
        say(f"Then open https://t.me/{bot} and press Start: before that this bot cannot write to you.")


def _of_this_account(settings: Settings, given: Mapping[str, str]) -> Settings:
    """Return the settings, for another mail account without what the home keeps of the one before."""
    account, before = realms.realm_of(Settings.from_env(given), MAIL), realms.realm_of(settings, MAIL)
    if account in {before, realms.SANDBOX}:
        return settings
    left: dict[str, Any] = {_field(name): None for name in credentials_in(settings.home) if name in OF_MAIL}
    return replace(settings, **left)


def _answers(settings: Settings, given: Mapping[str, str]) -> dict[str, str]:
    """Return what is newly said of the channels, by the names of the settings, checked."""
    said = dict(given)
    for name, (question, secret) in QUESTIONS.items():
        if _known(settings, name) or {name, f"{name}_FILE"} & set(said):
            continue
        if name in OF_MAIL and not (_known(settings, "BUTLERS_SMTP_URL") or _named(said, "BUTLERS_SMTP_URL")):
            continue
        if answer := answer_to(question, secret=secret):
            said[name] = answer
    read = Settings.from_env(said)
    values = {
        "BUTLERS_TELEGRAM_TOKEN": read.telegram_token and read.telegram_token.reveal(),
        "BUTLERS_SMTP_URL": read.smtp_url and read.smtp_url.reveal(),
        "BUTLERS_EMAIL_FROM": read.email_from,
        "BUTLERS_IMAP_URL": read.imap_url and read.imap_url.reveal(),
    }
    found = {name: value for name, value in values.items() if value}
    if "BUTLERS_SMTP_URL" in found and not (settings.email_from or read.email_from):
        raise InvalidInput("Mails need an address that they come from.", "Give --email-from.")
    return found


def _known(settings: Settings, name: str) -> bool:
    return getattr(settings, _field(name)) is not None


def _field(name: str) -> str:
    return name.removeprefix("BUTLERS_").lower()


def _named(said: Mapping[str, str], name: str) -> bool:
    return bool(said.get(name) or said.get(f"{name}_FILE"))


def _with(settings: Settings, kept: Mapping[str, str]) -> Settings:
    """Return the settings as they are with what is kept."""
    read = Settings.from_env(kept)
    return replace(settings, **{name: getattr(read, name) for name in map(_field, kept)})


async def _read(settings: Settings, live: Settings) -> House:
    """Read contacts, and what rules allow in the sandbox; raise Misconfigured if no channel would be live.

    What blocks holds wherever it was made.
    """
    async with as_owner(settings) as connection:
        noted = await realms.noted(connection)
        now = {name: realms.realm_of(live, name) for name in CHANNELS}
        found = {name: now[name] if now[name] != realms.SANDBOX else noted.get(name, realms.SANDBOX) for name in now}
        house = House(
            await contacts.list_contacts(connection),
            [row for row in await rules.list_rules(connection) if row["realm"] == realms.SANDBOX and _allows(row)],
            {name: realm for name, realm in found.items() if realm != realms.SANDBOX},
            {name for name, realm in noted.items() if realm != realms.SANDBOX} | await realms.were_live(connection),
        )
    if not house.live:
        raise Misconfigured("No channel is live yet.", "Give --telegram-token-file or --smtp-url-file.")
    return house


def _owner(house: House) -> Record:
    for row in house.people:
        if "owner" in row["roles"]:
            return row
    raise Misconfigured("There is no owner yet.", "Run `butlers contacts add NAME --role owner`.")


def _is_reached(row: Record, channel: str) -> bool:
    """Return whether this person has an address on a channel that somebody can be at."""
    made_up = CHANNELS[channel].address.is_made_up
    return any(one["type"] == channel and not made_up(one["value"]) for one in row["entries"])


def _owners_address(house: House, given: str | None) -> str | None:
    """Return the owner's own mail address, asked for where mail is live and no real one is on file."""
    if given or MAIL not in house.live or _is_reached(_owner(house), MAIL):
        return given
    answer = answer_to("Your own e-mail address:")
    if not answer:
        raise InvalidInput("Your own e-mail address is missing.", "Give --owner-email.")
    return answer


def _chosen_people(house: House, said: str | None) -> list[Record]:
    """Return the contacts to take along."""
    others = [row for row in house.people if "owner" not in row["roles"]]
    names = ", ".join(str(row["name"]) for row in others)
    words = _choice(f"Contacts: {names}. Take along all, none, or these names [all]:", said, "--contacts", others)
    return others if words is None else [contact_of(others, word) for word in words]


def _chosen_rules(house: House, said: str | None) -> list[Record]:
    """Return the rules to take along."""
    known = {str(row["id"]): row["contact"] for row in house.rules}
    if said is None:
        for row in house.rules:
            pinned = rules.scope(row["effect"], row["origin_butler"], row["arg_constraints"], known[row["id"]])
            say(f"{row['id'][:SHORT]}  {pinned}")
    question = "Rules, as above. Take along all, none, or these ids [all]:"
    words = _choice(question, said, "--rules", house.rules)
    return list(house.rules) if words is None else [one_of(house.rules, word, "rule") for word in words]


def _choice(question: str, said: str | None, option: str, of: Sequence[Record]) -> list[str] | None:
    """Return the names that are chosen; None for all of them."""
    if not of:
        return None
    answer = answer_to(question) if said is None else said
    if answer is None:
        raise InvalidInput("Nobody is here to say what to take along.", f"Give {option} all, none, or a list.")
    if answer.strip().lower() in {"", "all"}:
        return None
    return [] if answer.strip().lower() == "none" else [word.strip() for word in answer.split(",") if word.strip()]


async def _carry_out(
    settings: Settings,
    house: House,
    address: str | None,
    people: Sequence[Record],
    along: Sequence[Record],
    kept: Mapping[str, str],
) -> str:
    """Write it all or nothing; return the code that pairs the owner's chat, empty where there is one."""
    async with as_owner(settings) as connection:
        owner = await owner_id(connection)
        if address:
            await contacts.add_address(connection, owner, MAIL, address, primary=True)
        taken = {owner, *(str(row["id"]) for row in people)}
        for row in await contacts.list_contacts(connection):
            await _leave_behind(connection, house, row, is_taken=str(row["id"]) in taken)
        for row in along:
            if row["arg_constraints"].get("contact_id", owner) not in taken:
                say(f"Left behind: rule {row['id'][:SHORT]}, with its contact.")
                continue
            await _take_along(connection, house, row, owner)
        code = ""
        if PAIRED in house.live and not _is_reached(_owner(house), PAIRED):
            code = secrets.token_urlsafe(16)
            await pairings.offer(connection, code, settings.timings.pairing)
        if kept:  # the last step: where the home cannot be written, nothing else has changed
            _keep(settings, kept)
        return code


def _keep(settings: Settings, kept: Mapping[str, str]) -> None:
    """Keep what was newly said beside what counts of before."""
    before = credentials_in(settings.home)
    counts = {name: value for name, value in before.items() if name not in OF_MAIL or _known(settings, name)}
    content = {**counts, **kept}
    keystore.replace_credentials(settings.home, MESSENGER, (json.dumps(content, indent=2) + "\n").encode())
    if MAILBOX in set(before) - set(content):
        say("The mailbox of the mail account before is read no more. To read this one's, give --imap-url-file.")


async def _leave_behind(connection: Connection, house: House, row: Record, *, is_taken: bool) -> None:
    """Forget this person's addresses that nobody is at, or all of them; of the owner's, the last stays until paired.

    On a channel that was live before people stay whom the owner has met there since.
    """
    is_owner = "owner" in row["roles"]
    for entry in row["entries"]:
        kind, value = entry["type"], entry["value"]
        made_up = CHANNELS[kind].address.is_made_up(value)
        goes = made_up and _is_reached(row, kind) if is_owner else made_up or not (is_taken or kind in house.before)
        if goes and kind in house.live:
            await contacts.remove_address(connection, str(row["id"]), kind, value)
            say(f"Left behind: {row['name']}, {kind} {value}.")


async def _take_along(connection: Connection, house: House, row: Record, owner: str) -> None:
    """Make the rule anew for each live channel that it speaks of, unless it is there already, or was and has ended.

    Of what was taken along before, to whichever account, the newest counts, with what is left of its uses and time.
    Those before it end, so that none goes on when its account is live again.
    """
    pinned = dict(row["arg_constraints"])
    only = pinned.get("channel") or ("recipient" in pinned and parse_recipient(pinned["recipient"]).channel)
    existing = await rules.list_rules(connection)  # with what was made of a rule before this one
    for channel in [name for name in house.live if only in {False, name}]:
        wanted, realm = {**pinned, "channel": channel}, house.live[channel]
        same = (row["effect"], row["origin_butler"], wanted)
        alike = [e for e in existing if (e["effect"], e["origin_butler"], _pinned(e, channel)) == same]
        newest = [row, *(e for e in alike if e["realm"] != realms.SANDBOX)][-1]
        is_here = newest["realm"] == realm
        for one in alike:
            if one["active"] and one["realm"] not in {realms.SANDBOX, realm if is_here else None}:
                await rules.revoke(connection, one["id"], owner)
        if not _allows(newest):
            say(f"Left behind: rule {row['id'][:SHORT]}, which has ended {CHANNELS[channel].via}.")
        elif not is_here:
            made = await rules.add(connection, _left_of(newest, wanted), owner, realm=realm)
            words = rules.scope(row["effect"], row["origin_butler"], wanted, row["contact"])
            say(f"Rule {made[:SHORT]}: {words}.")


def _pinned(rule: Record, channel: str) -> Mapping[str, object]:
    """Return what the rule pins; an address says its channel by itself."""
    pinned: Mapping[str, object] = rule["arg_constraints"]
    return {"channel": channel, **pinned} if "recipient" in pinned else pinned


def _allows(rule: Record) -> bool:
    """Return whether the rule still lets something out."""
    used_up = rule["max_uses"] is not None and rule["used"] >= rule["max_uses"]
    return rule["effect"] == "allow" and rule["active"] and not used_up


def _left_of(rule: Record, wanted: Mapping[str, Any]) -> NewRule:
    """Return what is left of a rule, for these constraints."""
    uses = rule["max_uses"] - rule["used"] if rule["max_uses"] else None
    lasts = rule["expires_at"] - datetime.now(UTC) if rule["expires_at"] else None
    return NewRule(rule["effect"], wanted, rule["origin_butler"], uses, rule["max_per_day"], lasts)
