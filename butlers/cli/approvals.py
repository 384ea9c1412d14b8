"""approvals list, show, approve, deny, edit: the owner's word from the command line."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from butlers.cli.options import SHORT, HomeOption, JsonOption
from butlers.cli.terminal import (
    as_owner,
    beginning,
    each,
    instant,
    only,
    owner_id,
    say,
    say_json,
    say_lines,
    settings_of,
    table,
    text_of,
)
from shared.config.settings import Settings
from shared.db.pool import Connection, Record
from shared.display.fates import ACTION, CALL
from shared.display.visible import quoted
from shared.errors import ButlersError, InvalidInput, Unreadable
from shared.hashing import reference, short
from shared.storage import deliveries, pending_actions, tool_calls
from shared.storage.addressees import Addressee, addressee

if TYPE_CHECKING:  # keeps --help quick
    from shared.display.approval import Asked
    from shared.display.tool_call import AskedCall
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
    """A revision as its card would show it, and in how many parts it would go out; none where it cannot."""

    revision: int
    asked: "Asked"
    parts: int


T = TypeVar("T")
app = typer.Typer(help="Messages waiting for your approval.", no_args_is_help=True)
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id or the beginning of it, or the reference.")]
IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="One id or several, or what they begin with.")]
RevisionOption = Annotated[
    int | None, typer.Option("--revision", min=1, help="Only if it is still this revision, as `show` printed it.")
]
NOTHING_ELSE = "No rule allows it."
UNCERTAIN_ONLY = "`butlers approvals list --status uncertain` lists those."
STATUSES = ("pending", "approved", "denied", "expired", "cancelled", "executing", "executed", "failed", "uncertain")


def add_to(line: typer.Typer) -> None:
    """Put these commands on the command line."""
    line.add_typer(app, name="approvals")


async def _read(home_folder: Path | None, status: str | None, made: Callable[[Record, Addressee], T]) -> list[T]:
    """Return what is made of each action; no action as its butler wrote it is held on to."""
    async with as_owner(settings_of(None, home_folder)) as connection:
        found = pending_actions.list_actions(connection, status)
        return [made(row, await _to(connection, row)) async for row in found]


async def _to(connection: Connection, row: Record) -> Addressee:
    """Return the recipient as it resolves now; once decided, as the Messenger resolved it."""
    went = None if row["status"] == "pending" else row["sent_to"]
    return await addressee(connection, row["whom"] or "", row["channel"], went)


@app.command("list")
def list_all(
    status: Annotated[str | None, typer.Option("--status", help="Only approved, denied, expired, ... ones.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Include those that are decided.")] = False,  # noqa: FBT002
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """List what waits for your approval, oldest first."""
    if status not in {None, *STATUSES}:
        raise InvalidInput(f"Unknown status `{status}`.", f"Choose from: {', '.join(STATUSES)}.")
    wanted = status or (None if everything else "pending")
    if as_json:
        say_json({"actions": asyncio.run(_read(home_folder, wanted, _object))})
        return
    cells = asyncio.run(_read(home_folder, wanted, _cells))
    nothing = "Nothing needs your approval." if status is None and not everything else "There are no such approvals."
    table(("id", "ref", "status", "butler", "to", "by", "message"), cells, nothing)


def _cells(row: Record, to: Addressee) -> list[object]:
    """Return what the list shows of an action; of a tool call its tool and the tool's own sentence."""
    begins, butler = row["id"][:SHORT], row["origin_butler"]
    if row["says"] is not None:
        return [begins, "", CALL[row["status"]], butler, row["tool_name"], "tool", beginning(row["says"])]
    return [begins, _reference(row), ACTION[row["status"]], butler, to, row["channel"], beginning(_message(row))]


def _show_call(row: Record, call: "AskedCall") -> None:
    """Print a call: as its card puts it as long as it waits, and later what it was and what it answered."""
    from shared.display.quotes import Quote, quotation  # noqa: PLC0415  # keeps --help quick
    from shared.display.tool_call import call_lines, call_quotes, wants_to_run  # noqa: PLC0415  # as above

    say(wants_to_run(call.origin, call.tool_name))
    shown = {"id": row["id"], "status": CALL[row["status"]], "revision": row["revision"]}
    for name, value in {**shown, "requested": instant(row["requested_at"], "seconds")}.items():
        say(f"{name}: {value}")
    answered = (Quote(row["result"], "It answered"),) if row["result"] else ()
    over = "\n\n".join(map(quotation, [*call_quotes(call), *answered])).split("\n")
    lines = call_lines(call) if row["status"] == "pending" else [*over, "", f"hash {short(row['content_sha'])}"]
    for line in ["", *lines]:
        say(line)


@app.command()
def show(
    action_id: IdArgument,
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Show one approval request with the whole text."""

    async def read() -> "tuple[Record, Addressee, Question | None, AskedCall | None]":
        async with as_owner(settings_of(None, home_folder)) as connection:
            row = await _one(connection, action_id)
            asked = await _question(connection, row), await _call(connection, row)
            return row, await _to(connection, row), *asked

    row, to, question, call = asyncio.run(read())
    if as_json:
        say_json(_object(row, to))
        return
    if call is not None:
        _show_call(row, call)
        return
    say(f"{to} by {row['channel']}")
    shown = {"id": row["id"], "ref": _reference(row), "status": ACTION[row["status"]], "butler": row["origin_butler"]}
    shown = {**shown, "revision": row["revision"], "requested": instant(row["requested_at"], "seconds")}
    if question is not None and row["status"] == "pending":
        shown |= {"parts": question.parts, "findings": " ".join(question.asked.findings) or NOTHING_ELSE}
    for name, value in shown.items():
        say(f"{name}: {value}")
    say("")
    if question is not None and row["status"] == "pending":
        from shared.display.approval import lines  # noqa: PLC0415  # keeps --help quick

        for line in lines(question.asked):
            say(line)
        return
    message = _message(row)
    say(f"Length: {len(message)} characters, hash {short(row['content_sha'])}")
    say_lines(quoted(message))


@app.command()
def approve(action_ids: IdsArgument, revision: RevisionOption = None, home_folder: HomeOption = None) -> None:
    """Approve exactly this message, or these."""
    if revision is not None and len(action_ids) > 1:
        raise InvalidInput("--revision is of one message.", "Approve the others by themselves.")
    each(action_ids, lambda one: _say_word(one, home_folder, approve=True, revision=revision))


@app.command()
def deny(
    action_ids: IdsArgument,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why, for the butler; `-` reads it from standard input.")
    ] = None,
    home_folder: HomeOption = None,
) -> None:
    """Deny this message, or these; the butler is told the reason."""
    told = None if reason is None else text_of(reason)
    each(action_ids, lambda one: _say_word(one, home_folder, approve=False, reason=told))


@app.command()
def edit(
    action_id: IdArgument,
    message: Annotated[str, typer.Option("--message", help="The new text; `-` reads it from standard input.")],
    home_folder: HomeOption = None,
) -> None:
    """Replace the text; you approve the new text before it is sent, and the butler is told."""
    from shared.gate.owner_decision import Edit, edit  # noqa: PLC0415  # keeps --help quick

    text = text_of(message)

    def change(connection: Connection, about: About) -> "Awaitable[Outcome]":
        asked_anew = about.settings.approval_ttl
        return edit(connection, Edit(about.action_id, text, about.by, "cli", asked_anew, about.revision))

    _carry_out(action_id, home_folder, change)


@app.command()
def resolve(
    action_id: IdArgument,
    word: Annotated[str, typer.Argument(metavar="ran|again|leave", help="What you know, or want.")],
    home_folder: HomeOption = None,
) -> None:
    """Resolve a tool call whose outcome is not known: it ran, run it again, or leave it."""
    from shared.gate.tool_call import CALL_WORDS, Resolve, resolve_call  # noqa: PLC0415  # keeps --help quick

    chosen = next((one for one in CALL_WORDS if one == word), None)
    if chosen is None:
        raise InvalidInput(f"`{word}` is not a valid answer.", "Use ran, again or leave.")

    async def carry() -> "Outcome":
        async with as_owner(settings_of(None, home_folder)) as connection:
            row = await _one(connection, action_id)
            call = await tool_calls.one(connection, row["id"])
            if call is None or call["status"] != "uncertain":
                raise ButlersError("It is no tool call of unknown outcome.", UNCERTAIN_ONLY)
            said = Resolve(call["id"], call["attempt"], chosen, await owner_id(connection), "cli")
            return await resolve_call(connection, said)

    outcome = asyncio.run(carry())
    if outcome.code != "resolved":
        raise ButlersError(outcome.text)
    say(outcome.text)


def _say_word(
    action_id: str, home_folder: Path | None, *, approve: bool, reason: str | None = None, revision: int | None = None
) -> None:
    from shared.gate.owner_decision import OwnerDecision, apply  # noqa: PLC0415  # keeps --help quick

    def word(connection: Connection, about: About) -> "Awaitable[Outcome]":
        lasts, meant = about.settings.approval_ttl, about.revision if revision is None else revision
        return apply(
            connection,
            OwnerDecision(about.action_id, approve, about.by, "cli", lasts, reason, meant, shown=about.shown),
        )

    _carry_out(action_id, home_folder, word)


def _carry_out(
    action_id: str, home_folder: Path | None, said: "Callable[[Connection, About], Awaitable[Outcome]]"
) -> None:
    """Take the owner's word for the revision that was read here and no other, and print what it is about."""
    settings = settings_of(None, home_folder)

    async def carry() -> "tuple[Outcome, list[str]]":
        async with as_owner(settings) as connection:
            by = await owner_id(connection)
            row = await _one(connection, action_id)
            question, call = await _question(connection, row), await _call(connection, row)
            revision, shown, told = row["revision"], None, list[str]()
            if question is not None:
                revision, shown, told = question.revision, question.asked.content_sha, _whom(question)
            elif call is not None:
                shown, told = call.content_sha, _what(call)
            outcome = await said(connection, About(row["id"], revision, by, settings, shown))
            if outcome.code == "edited" and (question := await _question(connection, row)) is not None:
                told = _whom(question)  # what is to be approved now
            return outcome, told

    outcome, told = asyncio.run(carry())
    if outcome.code not in {"approved", "denied", "edited"}:
        raise ButlersError(outcome.text)
    for line in [*told, outcome.text]:
        say(line)


def _whom(question: Question) -> list[str]:
    from shared.display.approval import foot, head  # noqa: PLC0415  # keeps --help quick

    return [*head(question.asked), foot(question.asked)[-1]]


def _what(call: "AskedCall") -> list[str]:
    from shared.display.tool_call import call_foot, call_head  # noqa: PLC0415  # as above

    return [call_head(call)[0], call_foot(call)[-1]]


async def _call(connection: Connection, row: Record) -> "AskedCall | None":
    """Return the call that this is about, in the words of its card; None for a message."""
    from shared.gate.tool_call import asked_call  # noqa: PLC0415  # keeps --help quick

    call = await tool_calls.one(connection, row["id"])
    return None if call is None else await asked_call(connection, call)


async def _question(connection: Connection, row: Record) -> Question | None:
    """Return what its card would ask now; None if that cannot be read."""
    from shared.gate.approval_request import asked  # noqa: PLC0415  # keeps --help quick

    action = await pending_actions.open_action(connection, row["id"])
    try:
        if action is None:
            return None
        question = await asked(connection, action)
        return Question(action["revision"], question, await _parts(connection, action) if question.deliverable else 0)
    except (Unreadable, InvalidInput):
        return None


async def _parts(connection: Connection, action: Record) -> int:
    """Return in how many parts the message would go out."""
    from shared.gate.evaluate import Evaluation, evaluate  # noqa: PLC0415  # as above

    found = await evaluate(connection, action["notification_id"], lock=False)
    return len(found.wires()) if isinstance(found, Evaluation) else 0


async def _one(connection: Connection, said: str) -> Record:
    """Return the one approval that is meant by the beginning of its id, or by the reference of its message."""
    referred = [row["notification_id"] for row in await deliveries.referred(connection, said)]
    begun, about = await pending_actions.ids_of(connection, said), await pending_actions.ids_about(connection, referred)
    row = await pending_actions.one(connection, only(sorted({*begun, *about}), said, "approval"))
    return only([] if row is None else [row], said, "approval")


def _reference(row: Record) -> str:
    """Return the reference of the message on its way; empty as long as it is not on its way."""
    return reference(row["delivery_id"]) if row["delivery_id"] else ""


def _object(row: Record, to: Addressee) -> dict[str, object]:
    return {**row, "tool_args": _args(row), "to": asdict(to), "reference": _reference(row) or None}


def _args(row: Record) -> Mapping[str, object] | None:
    """Return the call as it would go out: the notification's own words before what is kept with the question.

    Return None if that cannot be read.
    """
    from shared.storage.readable import question  # noqa: PLC0415  # keeps --help quick

    if row["says"] is not None:
        return {"arguments": row["arguments"]}
    found, kept = question(row), row["tool_args"]
    if found is None:
        return None
    # What would not go out is kept, and is no part of what the owner decides.
    args = {**(kept if isinstance(kept, Mapping) else {}), **found}
    return {name: value for name, value in args.items() if name != "as_called"}


def _message(row: Record) -> str:
    from shared.storage.readable import shown  # noqa: PLC0415  # as above

    return str(shown(_args(row), row["id"]).get("message", ""))
