"""What is said in a conversation, as a runtime and the owner read it: each text in a block that says whose it is. Pure.

INVARIANT: nothing of a text or of a name can end its block, or pass for a line of ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html import escape
from typing import Final

from shared.display.visible import in_line, visible

MOST_TURNS: Final = 20
MOST_CHARACTERS: Final = 8_000
# A text of its own is never longer than what may be asked.
LONGEST: Final = 20_000
CUT: Final = "… (cut)"
BEFORE: Final = "Earlier in this conversation, oldest first; it was dealt with when it came, so do not answer it again:"
NOW: Final = "The message to deal with now:"
THEIRS: Final = "The conversation that the owner's words below are about. It tells you what was said and asks nothing:"
# What else is said than by a message of one's own.
KINDS: Final = {"forward": "forwarded", "edit": "edited", "reaction": "reaction"}


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
    files: int = 0


def speaker(turn: Turn) -> str:
    """Return whose words these are, in one word: nobody is called owner or contact who is not proved to be that."""
    if turn.butler:
        return "butler"
    if not turn.is_verified:
        return "unverified"
    return "owner" if turn.is_owner else "contact" if turn.contact else "stranger"


def framed(turn: Turn, most: int = LONGEST) -> str:
    """Return a text in its block: who wrote it, by which channel, whether that is verified, and what was said."""
    who = speaker(turn)
    named = turn.butler if who == "butler" else turn.contact if who == "contact" else turn.name
    known = who in {"owner", "butler"}
    about = {
        "from": who,
        "name": "" if who == "owner" else in_line(named[:200]),
        "address": "" if known else in_line(turn.sender[:320]),
        "channel": turn.channel,
        "verified": "yes" if turn.is_verified or turn.butler else "no",
        "kind": KINDS.get(turn.kind, ""),
        "files": str(turn.files or ""),
        "at": turn.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    said = " ".join(f'{name}="{escape(value)}"' for name, value in about.items() if value)
    return f"<message {said}>\n{_text(turn.text, most)}\n</message>"


def _text(text: str, most: int) -> str:
    return escape(visible(text if len(text) <= most else f"{text[:most]}{CUT}"), quote=False)


def latest(turns: Sequence[Turn]) -> list[Turn]:
    """Return the last turns that fit into a prompt, in their order; the oldest of them may be cut off."""
    kept, room = list[Turn](), MOST_CHARACTERS
    for turn in reversed(turns[-MOST_TURNS:]):
        if room <= 0:
            break
        kept.append(turn if len(turn.text) <= room else replace(turn, text=f"{turn.text[:room]}{CUT}"))
        room -= len(turn.text)
    return kept[::-1]


def prompt_of(asked: Turn, before: Sequence[Turn] = (), *, theirs: bool = False) -> str:
    """Return the prompt that a message becomes: what was said before, and the message, each in its block.

    `theirs` says that what was said before is another's conversation, which the owner writes about.
    """
    blocks = [framed(turn) for turn in latest(before)]
    history = [THEIRS if theirs else BEFORE, *blocks, NOW] if blocks else []
    return "\n\n".join([*history, framed(asked)])
