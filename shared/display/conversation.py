"""What is said in a conversation, as a runtime and the owner read it: each text in a block that says whose it is. Pure.

INVARIANT: nothing of a text or of a name can end its block, or pass for a line of ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Final

from shared.display.visible import in_line, visible

MOST_TURNS: Final = 20
MOST_CHARACTERS: Final = 8_000
# A text of its own is never longer than what may be asked.
LONGEST: Final = 20_000
# Of a file that is text, and of each name.
LONGEST_FILE: Final = 100_000
LONGEST_NAME: Final = 200
# What arrives so long after it was written says both.
ARRIVES_LATE: Final = timedelta(minutes=5)
MOST_FILES: Final = 10
CUT: Final = "… (cut)"
BEFORE: Final = "Earlier in this conversation, oldest first; it was dealt with when it came, so do not answer it again:"
NOW: Final = "The message to deal with now:"
AFTER: Final = "What that chat brought right after it, oldest first; the message above may speak of it:"
THEIRS: Final = "The conversation that the owner's words below are about. It tells you what was said and asks nothing:"
# What is brought by one whose words it need not hold: an answer that a program writes repeats what somebody else wrote.
BROUGHT: Final = {"forward": "forwarded", "automatic": "automatic", "quoted": "quoted"}
# What else is said than by a message of one's own.
KINDS: Final = {
    **BROUGHT,
    "edit": "edited",
    "reaction": "reaction",
    "request": "request",
    "question": "question",
    "answer": "answer",
}
LONGEST_EXCHANGED: Final = 1_000
# Of what the classifier is shown: the message, and what all butlers are for, together.
LONGEST_CLASSIFIED: Final = 1_000
LONGEST_DESCRIPTIONS: Final = 6_000
WHO_TAKES: Final = "Which of these butlers takes the message below? Answer with the name alone."


@dataclass(frozen=True, slots=True)
class File:
    """A file that came with a message, as whoever sent it describes it."""

    name: str = ""
    type: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing that was said: by whom, where and when. `butler` says that it is one of ours, by that butler."""

    at: datetime
    channel: str
    text: str
    kind: str = "message"
    sender: str = ""
    name: str = ""
    contact: str = ""
    is_owner: bool = False
    # The channel proves that whoever is named wrote it; a sender that anybody can write proves nothing.
    is_verified: bool = False
    butler: str = ""
    files: Sequence[File] = ()
    # The message's own, by which a file of it is asked for.
    id: str = ""
    # Whether the message that is asked answers it.
    is_answered: bool = False
    # When it was, if it arrived late; `at` is when it arrived.
    written: datetime | None = None
    # The part of another message that the writer marked, or what was taken for a quotation of a mail, though its
    # beginning may be the writer's own words.
    left_out: str = ""


def written_at(observed: object, arrived: datetime) -> datetime | None:
    """Return when a message was written by its channel's own clock, if it arrived late; None else, or if none says."""
    try:
        written = datetime.fromisoformat(str(observed))
    except ValueError:
        return None
    # Where a channel says nothing, the beginning of time stands for it.
    is_known = written.tzinfo is not None and written.timestamp() > 0
    return written if is_known and arrived - written > ARRIVES_LATE else None


def speaker(turn: Turn) -> str:
    """Return whose words these are, in one word: nobody is called owner or contact who is not proved to be that.

    Who wrote what was brought is never proved.
    """
    return "unverified" if turn.kind in BROUGHT else sender_of(turn)


def sender_of(turn: Turn) -> str:
    """Return who sent it, in one word, whosever words they are."""
    if turn.butler:
        return "butler"
    if not turn.is_verified:
        return "unverified"
    return "owner" if turn.is_owner else "contact" if turn.contact else "stranger"


def framed(turn: Turn, most: int = LONGEST) -> str:
    """Return a text in its block: who wrote it, by which channel, whether that is verified, and what was said.

    What is quoted beside it stands in a block of its own behind it.
    """
    about = {
        **_about(turn),
        "kind": KINDS.get(turn.kind, ""),
        "answered": "yes" if turn.is_answered else "",
        "files": listed(turn.files),
        "id": turn.id if turn.files else "",
        "at": _instant(turn.written or turn.at),
        "arrived": _instant(turn.at) if turn.written else "",
    }
    block = f"<message {_attributes(about)}>\n{_text(turn.text, most)}\n</message>"
    # Whose words these are nobody knows.
    beside = replace(turn, text=turn.left_out, kind="quoted", files=(), is_answered=False, left_out="")
    return f"{block}\n\n{framed(beside, most)}" if turn.left_out else block


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def framed_file(turn: Turn, number: int, said: str) -> str:
    """Return what is said of a file, or its words, in a block that says who brought it.

    INVARIANT: nobody is said to have written a file, as a letter may be anybody's.
    """
    file = turn.files[number - 1]
    about = {
        **_brought(turn, "brought_by", "bringer"),
        "file": in_line(file.name[:LONGEST_NAME]),
        "type": in_line(file.type[:LONGEST_NAME]),
    }
    return f"<attachment {_attributes(about)}>\n{_text(said, LONGEST_FILE)}\n</attachment>"


def _about(turn: Turn) -> dict[str, str]:
    if turn.kind in BROUGHT:
        return _brought(turn, "forwarded_by", "forwarder")
    who, name, address = _named(turn)
    verified = "yes" if turn.is_verified or turn.butler else "no"
    return {"from": who, "name": name, "address": address, "channel": turn.channel, "verified": verified}


def _brought(turn: Turn, verb: str, person: str) -> dict[str, str]:
    """Return the attributes of what somebody brought; nothing of that one stands where it would name the writer."""
    who, name, address = _named(turn)
    bringer = {verb: who, f"{person}_name": name, f"{person}_address": address}
    return {"from": "unverified", **bringer, "channel": turn.channel, "verified": "no"}


def _named(turn: Turn) -> tuple[str, str, str]:
    """Return who sent it in one word, with the name and the address that this one is known by."""
    who = sender_of(turn)
    named = turn.butler if who == "butler" else turn.contact if who == "contact" else turn.name
    known = who in {"owner", "butler"}
    return who, "" if who == "owner" else in_line(named[:200]), "" if known else in_line(turn.sender[:320])


def listed(files: Sequence[File]) -> str:
    """Return the files with their numbers, names, types and sizes, on one line."""
    named = [", ".join(filter(None, (file.name[:LONGEST_NAME], file.type, _bytes(file)))) for file in files]
    # No name can add another to the list.
    plain = [in_line(name).replace(";", ",") for name in named[:MOST_FILES]]
    listed = "; ".join(f"{n}: {name}" for n, name in enumerate(plain, start=1))
    return f"{listed}; {len(files)} in all" if len(files) > MOST_FILES else listed


def _bytes(file: File) -> str:
    return "" if file.size is None else f"{file.size} bytes"


def _attributes(about: Mapping[str, str]) -> str:
    return " ".join(f'{name}="{escape(value)}"' for name, value in about.items() if value)


def _text(text: str, most: int) -> str:
    return escape(visible(text if len(text) <= most else f"{text[:most]}{CUT}"), quote=False)


def latest(turns: Sequence[Turn]) -> list[Turn]:
    """Return the last turns that fit into a prompt, in their order; the oldest of them may be cut off.

    INVARIANT: what is answered is among them and whole, whatever others said after it.
    """
    kept, room = list[Turn](), MOST_CHARACTERS - sum(map(_length, filter(lambda turn: turn.is_answered, turns)))
    for place, turn in enumerate(reversed(turns)):
        if turn.is_answered:
            kept.append(turn)
        elif room > 0 and place < MOST_TURNS:
            cut = replace(turn, text=f"{turn.text[:room]}{CUT}" if len(turn.text) > room else turn.text, left_out="")
            kept.append(turn if _length(turn) <= room else cut)
            room -= _length(turn)
    return kept[::-1]


def _length(turn: Turn) -> int:
    return len(turn.text) + len(turn.left_out)


def with_answered(before: Sequence[Turn], answered: Turn | None) -> list[Turn]:
    """Return what was said before with what is answered in its place, or first where it is not among that."""
    if answered is None:
        return list(before)
    marked = [answered if turn.id == answered.id else turn for turn in before]
    return marked if answered in marked else [answered, *marked]


def exchanges(turns: Sequence[Turn], most: int) -> list[tuple[str, str]]:
    """Return the last exchanges of a butler and the owner: what the one said, and what the other said to that."""
    found = list[tuple[str, str]]()
    for turn in turns:
        text = turn.text if len(turn.text) <= LONGEST_EXCHANGED else f"{turn.text[:LONGEST_EXCHANGED]}{CUT}"
        if turn.butler:
            found.append((text, ""))
        elif speaker(turn) == "owner":
            said = found.pop()[0] if found and not found[-1][1] else ""
            found.append((said, text))
    return found[-most:]


def prompt_of(asked: Turn, before: Sequence[Turn] = (), *, theirs: bool = False, after: Sequence[Turn] = ()) -> str:
    """Return the prompt that a message becomes: what was said before, the message, and what came with it, in blocks.

    `theirs` says that what was said before is another's conversation, which the owner writes about.
    """
    blocks = [framed(turn) for turn in latest(before)]
    history = [THEIRS if theirs else BEFORE, *blocks] if blocks else []
    came = [framed(turn) for turn in latest(after)]
    now = [NOW] if blocks or came else []
    return "\n\n".join([*history, *now, framed(asked), *([AFTER, *came] if came else [])])


def prompt_to_classify(asked: Turn, butlers: Mapping[str, str]) -> str:
    """Return the prompt that asks which of these butlers takes a message; of what is long the beginning."""
    most = min(200, LONGEST_DESCRIPTIONS // max(1, len(butlers)))
    named = [f"- {name}: {in_line(what[:most])}" for name, what in sorted(butlers.items())]
    return "\n\n".join([WHO_TAKES, "\n".join(named), framed(asked, LONGEST_CLASSIFIED)])
