"""approvals list, show, approve, deny, edit: the owner's word from the command line."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from butlers.cli.options import SHORT, HomeOption, JsonOption
from butlers.cli.session import as_owner, one_of, owner_id, say, say_json, say_lines, settings_of, table
from shared.config.settings import Settings
from shared.db.pool import Connection, Record
from shared.display.fates import ACTION
from shared.display.visible import quoted
from shared.errors import ButlersError, InvalidInput, Unreadable
from shared.hashing import short
from shared.storage import pending_actions
from shared.storage.addressees import Addressee, addressee

if TYPE_CHECKING:  # keeps --help quick
    from shared.display.approval import Asked
    from shared.gate.owner_decision import Outcome


@dataclass(frozen=True, slots=True)
class About:
    """What the owner's word is about: an action in the revision that was printed, who says it, and the settings."""

    action_id: str
    revision: int
    by: str
    settings: Settings
    # The hash of what was printed; None where it cannot be read.
    shown: str | None


@dataclass(frozen=True, slots=True)
class Question:
    """A revision as its card would show it."""

    revision: int
    asked: "Asked"


app = typer.Typer(help="Messages waiting for your approval.", no_args_is_help=True)
IdArgument = Annotated[str, typer.Argument(help="The id, or the beginning of it.")]
STATUSES = ("pending", "approved", "denied", "expired", "cancelled", "executing", "executed", "failed", "uncertain")


async def _read(home_folder: Path | None, status: str | None) -> list[tuple[Record, Addressee]]:
    async with as_owner(settings_of(None, home_folder)) as connection:
        return [(row, await _to(connection, row)) for row in await pending_actions.list_actions(connection, status)]


async def _to(connection: Connection, row: Record) -> Addressee:
    """Return the recipient as it resolves now; once decided, as the Messenger resolved it."""
    went = None if row["status"] == "pending" else row["sent_to"]
    return await addressee(connection, row["whom"] or "", row["channel"], went)


@app.command("list")
def list_all(
    status: Annotated[str | None, typer.Option("--status", help="pending, approved, denied, ...")] = None,
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """List approval requests, oldest first."""
    if status not in {None, *STATUSES}:
        raise InvalidInput(f"Unknown status `{status}`.", f"Choose from: {', '.join(STATUSES)}.")
    found = asyncio.run(_read(home_folder, status))
    if as_json:
        say_json({"actions": [_object(row, to) for row, to in found]})
        return
    cells = [
        [
            row["id"][:SHORT],
            ACTION[row["status"]],
            row["origin_butler"],
            f"{to} by {row['channel']}",
            _message(row)[:60],
        ]
        for row, to in found
    ]
    table(("id", "status", "butler", "to", "message"), cells)


@app.command()
def show(
    action_id: IdArgument,
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Show one approval request with the whole text."""

    async def read() -> tuple[Record, Addressee, Question | None]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            row = one_of(await pending_actions.list_actions(connection, None), action_id, "approval")
            return row, await _to(connection, row), await _question(connection, row)

    row, to, question = asyncio.run(read())
    if as_json:
        say_json(_object(row, to))
        return
    for key in ("id", "status", "origin_butler", "requested_at"):
        say(f"{key}: {ACTION[row[key]] if key == 'status' else row[key]}")
    say("")
    if question is not None and row["status"] == "pending":
        from shared.display.approval import lines  # noqa: PLC0415  # keeps --help quick

        for line in lines(question.asked):
            say(line)
        return
    message = _message(row)
    say(f"To: {to} by {row['channel']}")
    say(f"Length: {len(message)} characters, hash {short(row['content_sha'])}")
    say_lines(quoted(message))


@app.command()
def approve(action_id: IdArgument, home_folder: HomeOption = None) -> None:
    """Approve exactly this message."""
    _say_word(action_id, home_folder, approve=True)


@app.command()
def deny(
    action_id: IdArgument,
    reason: Annotated[str | None, typer.Option("--reason")] = None,
    home_folder: HomeOption = None,
) -> None:
    """Deny this message; the butler is told the reason."""
    _say_word(action_id, home_folder, approve=False, reason=reason)


@app.command()
def edit(
    action_id: IdArgument,
    message: Annotated[str, typer.Option("--message", help="The new text.")],
    home_folder: HomeOption = None,
) -> None:
    """Replace the text; you approve the new text before it is sent, and the butler is told."""
    from shared.gate.owner_decision import Edit, edit  # noqa: PLC0415  # keeps --help quick

    def change(connection: Connection, about: About) -> "Awaitable[Outcome]":
        asked_anew = about.settings.approval_ttl
        return edit(connection, Edit(about.action_id, message, about.by, "cli", asked_anew, about.revision))

    _carry_out(action_id, home_folder, change)


def _say_word(action_id: str, home_folder: Path | None, *, approve: bool, reason: str | None = None) -> None:
    from shared.gate.owner_decision import OwnerDecision, apply  # noqa: PLC0415  # keeps --help quick

    def word(connection: Connection, about: About) -> "Awaitable[Outcome]":
        lasts = about.settings.approval_ttl
        return apply(
            connection,
            OwnerDecision(about.action_id, approve, about.by, "cli", lasts, reason, about.revision, shown=about.shown),
        )

    _carry_out(action_id, home_folder, word)


def _carry_out(
    action_id: str, home_folder: Path | None, said: "Callable[[Connection, About], Awaitable[Outcome]]"
) -> None:
    """Take the owner's word for the revision that was read here and no other, and print whom it goes to."""
    settings = settings_of(None, home_folder)

    async def carry() -> "tuple[Outcome, Question | None]":
        async with as_owner(settings) as connection:
            by = await owner_id(connection)
            row = one_of(await pending_actions.list_actions(connection, None), action_id, "approval")
            question = await _question(connection, row)
            revision, shown = row["revision"], None
            if question is not None:
                revision, shown = question.revision, question.asked.content_sha
            return await said(connection, About(row["id"], revision, by, settings, shown)), question

    outcome, question = asyncio.run(carry())
    if outcome.code not in {"approved", "denied", "edited"}:
        raise ButlersError(outcome.text)
    if question is not None:
        _say_whom(question)
    say(outcome.text)


def _say_whom(question: Question) -> None:
    from shared.display.approval import foot, head  # noqa: PLC0415  # keeps --help quick

    say(head(question.asked)[0])
    say(foot(question.asked)[-1])


async def _question(connection: Connection, row: Record) -> Question | None:
    """Return what its card would ask now; None if that cannot be read."""
    from shared.gate.approval_request import asked  # noqa: PLC0415  # keeps --help quick

    action = await pending_actions.open_action(connection, row["id"])
    try:
        return None if action is None else Question(action["revision"], await asked(connection, action))
    except (Unreadable, InvalidInput):
        return None


def _object(row: Record, to: Addressee) -> dict[str, object]:
    return {**row, "tool_args": _args(row), "to": asdict(to)}


def _args(row: Record) -> Mapping[str, object] | None:
    """Return the call as it would go out: the notification's own words before what is kept with the question.

    Return None if that cannot be read.
    """
    from shared.storage.readable import question  # noqa: PLC0415  # keeps --help quick

    found, kept = question(row), row["tool_args"]
    return None if found is None else {**(kept if isinstance(kept, Mapping) else {}), **found}


def _message(row: Record) -> str:
    from shared.storage.readable import shown  # noqa: PLC0415  # as above

    return str(shown(_args(row), row["id"]).get("message", ""))
