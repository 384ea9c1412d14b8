"""audit verify, changes: whether the audit is what was written, and what it tells of beside messages."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Final

import typer

from butlers.cli.options import HomeOption, JsonOption
from butlers.cli.terminal import as_login, as_owner, instant, say, say_json, settings_of, table
from butlers.daemon import discovery
from shared.audit import Chain, Flaw, Lines, Seal, flaws_of_seal, signed_words
from shared.auth import keystore
from shared.auth.keypairs import signer_of
from shared.config.settings import Settings
from shared.config.timings import STANDARD
from shared.db.pool import Connection
from shared.errors import InvalidInput
from shared.storage import audit_bindings, audit_seals, changes, keyring

app = typer.Typer(help="Verify and read the audit log.", no_args_is_help=True)
SHOWN: Final = 100
MESSENGER: Final = "messenger"


@dataclass(slots=True)
class Report:
    """What `audit verify` found: of the flaws the first hundred, and how many there are."""

    seals: int = 0
    lines: int = 0
    head: Seal | None = None
    unsealed: int = 0
    unsealed_since: str | None = None
    # By actor: lines committed when all around them were sealed, by a login that can write in no other name.
    late: Counter[str] = field(default_factory=Counter)
    # Whether the public keys are those of BUTLERS_HOME, which no superuser of the database can change.
    own_keys: bool = True
    # What `--deep` found.
    rows: audit_bindings.Compared | None = None
    count: int = 0
    flaws: list[Flaw] = field(default_factory=list)

    def add(self, flaws: Iterator[Flaw]) -> None:
        """Count the flaws, and keep the first hundred of all."""
        for flaw in flaws:
            self.count += 1
            if len(self.flaws) < SHOWN:
                self.flaws.append(flaw)


@app.command()
def verify(
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    head: Annotated[str | None, typer.Option("--head", help="Hash of a seal that the chain must contain.")] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also compare the messages with the log.")] = False,  # noqa: FBT002
    home_folder: HomeOption = None,
) -> None:
    """Check the whole log for edits, removals and insertions; exit code 1 if there are any."""
    if head is not None and not re.fullmatch(r"[0-9a-f]{64}", head):
        raise InvalidInput("--head is not the hash of a seal.", "Give the 64 digits shown in the Messenger's log.")
    report = asyncio.run(judge(settings_of(None, home_folder), bytes.fromhex(head) if head else None))
    if deep:
        asyncio.run(hold_beside(settings_of(None, home_folder), report))
    if as_json:
        say_json(_object(report))
    else:
        for line in _words(report):
            say(line)
    if report.count:
        raise typer.Exit(1)


@app.command("changes")
def list_changes(
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """List the last 200 changes of contacts, tokens, keys, rules, brakes and sign-ins."""

    async def read() -> list[changes.Change]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return await changes.latest(connection)

    found = [(one.seq, instant(one.at), one.what, one.text) for one in asyncio.run(read())]
    if as_json:
        say_json({"changes": [dict(zip(("line", "at", "what", "text"), one, strict=True)) for one in found]})
        return
    table(("line", "at", "what", "how"), found)


async def judge(settings: Settings, wanted: bytes | None) -> Report:
    """Check everything in one view of the database, a page at a time."""
    report, chain = Report(), Chain()
    known: Sequence[str] = keystore.public_keys(settings.home, MESSENGER)
    async with (
        as_login(settings, keystore.OWNER) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        if not known:
            report.own_keys, known = False, await keyring.all_of(connection, MESSENGER)
        is_signed = _checker(known)
        while page := await audit_seals.after(connection, chain.head.n if chain.head else 0):
            for seal in page:
                report.add(flaws_of_seal(seal, chain.head, is_signed))
                chain.add(seal)
                wanted = None if seal.hash == wanted else wanted
            await _lines(connection, page, report)
        if wanted is not None:
            text = f"No seal has the hash {wanted.hex()}: seals were removed together with the lines they covered."
            report.add(iter([Flaw("seal_missing", text)]))
        await _rest(connection, chain, report)
    report.seals, report.head = chain.seals, chain.head
    return report


async def hold_beside(settings: Settings, report: Report) -> None:
    """Compare each message's rows with the hashes in its lines: rows are not sealed, and lines are."""
    async with as_login(settings, keystore.OWNER) as connection:
        report.rows = await audit_bindings.compare(connection)
    report.add(Flaw("row_changed", one.text, None, one.seq) for one in report.rows.differs)


def _checker(known: Sequence[str]) -> Callable[[Seal], bool]:
    return lambda seal: signer_of(signed_words(seal), seal.signature, known) is not None


async def _lines(connection: Connection, page: Sequence[Seal], report: Report) -> None:
    """Compare what these seals cover with the lines that are there."""
    left = iter(page)
    seal = next(left)
    there = Lines(seal)
    async for n, line in audit_seals.covered(connection, page[0].n, page[-1].n):
        while seal.n != n:
            report.add(there.end())
            seal = next(left)
            there = Lines(seal)
        report.add(there.meet(line))
        report.lines += 1
    report.add(there.end())
    for seal in left:
        report.add(Lines(seal).end())


async def _rest(connection: Connection, chain: Chain, report: Report) -> None:
    """Report the lines that no seal covers.

    They were inserted by hand, kept back by a butler until all around them was sealed, or written since. Lines that
    have waited for long are a flaw only if a Messenger is up: one that stands still seals nothing.
    """
    async for line in audit_seals.uncovered(connection, chain.covered, STANDARD.clock_slack):
        if line.seq > chain.floor:
            report.unsealed += 1
            report.unsealed_since = min(f"{line.at}Z", report.unsealed_since or f"{line.at}Z")
        elif line.own:
            report.late[line.actor] += 1
        else:
            where = f"Line {line.seq}, by {line.actor!r}, is in the sealed part of the log, but no seal covers it"
            text = f"{where}: it was inserted, or its seal was removed."
            report.add(iter([Flaw("inserted", text, None, line.seq)]))
    too_long = await unsealed_too_long(connection)
    if too_long is not None:
        report.add(iter([Flaw("unsealed", too_long)]))


async def unsealed_too_long(connection: Connection) -> str | None:
    """Return the complaint if a Messenger is up and lines have been waiting for a seal for more than ten minutes."""
    lines, since = await audit_seals.overdue(connection)
    if not lines or not await discovery.is_up(connection, MESSENGER):
        return None
    return f"{lines} lines of the log have been unsealed since {since}Z although a Messenger is running."


def _object(report: Report) -> dict[str, object]:
    head, since = report.head, report.unsealed_since
    return {
        "whole": report.count == 0,
        "seals": report.seals,
        "lines": report.lines,
        "head": {"seal": head.n, "hash": head.hash.hex(), "at": f"{head.at}Z"} if head else None,
        "late": dict(sorted(report.late.items())),
        "unsealed": {"lines": report.unsealed, "since": since},
        "keys": "home" if report.own_keys else "keyring",
        "rows": {"lines": report.rows.lines, "without": report.rows.without} if report.rows else None,
        "flaws": [asdict(flaw) for flaw in report.flaws],
        "more": report.count - len(report.flaws),
    }


def _words(report: Report) -> Iterator[str]:
    for flaw in report.flaws:
        yield flaw.text
    if report.count > len(report.flaws):
        yield f"And {report.count - len(report.flaws)} more."
    said = "The audit log is intact" if report.count == 0 else "The audit log is broken"
    yield f"{said}: {report.seals} seals over {report.lines} lines."
    if report.head:
        yield f"The newest seal is {report.head.n}: {report.head.hash.hex()}"
    if report.unsealed:
        yield f"Not yet sealed: {report.unsealed} lines since {report.unsealed_since}."
    if report.rows:
        old = f"; {report.rows.without} are older than the recording of hashes" if report.rows.without else ""
        yield f"Compared with the stored messages: {report.rows.lines} lines{old}."
    for actor, count in sorted(report.late.items()):
        yield f"Too late for any seal: {count} lines by {actor!r}; its own process held them back."
    if not report.own_keys:
        yield "Signatures were checked with the keys in the database; the check is stronger where the Messenger's are."
