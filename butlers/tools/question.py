"""What a call of `ask_user` says: its parameters, and the question they make."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast, get_args

from butlers.butler import Arguments
from butlers.tools.notification_status import demand_known
from shared.errors import InvalidInput
from shared.storage.questions import NewQuestion, Urgency

SHORTEST: Final = 5
LONGEST: Final = 300
STANDARD: Final = 60
MOST_OPTIONS: Final = 10
LONGEST_LABEL: Final = 40
LONGEST_TITLE: Final = 200
LONGEST_QUESTION: Final = 10_000
ABOUT: Final = ("repo", "branch", "agent", "task")
LABEL: Final = "OK"

_TEXT: Final = {"type": "string"}
PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "title": {**_TEXT, "maxLength": LONGEST_TITLE, "description": "A few words on what it is about."},
        "question": {**_TEXT, "maxLength": LONGEST_QUESTION, "description": "The question."},
        "options": {
            "type": "array",
            "items": {**_TEXT, "maxLength": LONGEST_LABEL},
            "maxItems": MOST_OPTIONS,
            "description": "What the owner can choose, the main action first; of two the second declines.",
        },
        "action_label": {
            **_TEXT,
            "maxLength": LONGEST_LABEL,
            "default": LABEL,
            "description": "Without options, the text of the one button.",
        },
        "wait_for_response": {"type": "boolean", "default": False, "description": "Whether to wait for the answer."},
        "timeout": {
            "type": "number",
            "minimum": SHORTEST,
            "maximum": LONGEST,
            "default": STANDARD,
            "description": "Seconds to wait with wait_for_response.",
        },
        "urgency": {
            "type": "string",
            "enum": list(get_args(Urgency)),
            "default": "normal",
            "description": "What is high comes in quiet hours too, and once more if it is not answered.",
        },
        "allow_text": {"type": "boolean", "default": False, "description": "Whether the owner may write an answer."},
        **{name: {**_TEXT, "maxLength": LONGEST_TITLE, "description": f"The {name} it is about."} for name in ABOUT},
    },
    "required": ["title", "question"],
}


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """What a call says: the question, and how many seconds to wait for its answer; None is not to wait."""

    question: NewQuestion
    waits: float | None


def accepted(question_id: str, name: str, arguments: Arguments) -> AskedQuestion:
    """Return what is asked; raise InvalidInput, before anything is written, for what is no such question."""
    demand_known(arguments, cast("Mapping[str, object]", PARAMETERS["properties"]))
    waits = _flag(arguments, "wait_for_response")
    timeout = _timeout(arguments.get("timeout"))
    about = {one: text for one in ABOUT if (text := _text(arguments, one, LONGEST_TITLE, line=True))}
    question = NewQuestion(
        question_id,
        name,
        _needed(arguments, "title", LONGEST_TITLE, line=True),
        _needed(arguments, "question", LONGEST_QUESTION),
        _options(arguments.get("options")),
        _text(arguments, "action_label", LONGEST_LABEL, line=True) or LABEL,
        _flag(arguments, "allow_text"),
        _urgency(arguments.get("urgency")),
        about,
    )
    return AskedQuestion(question, timeout if waits else None)


def _needed(arguments: Arguments, name: str, longest: int, *, line: bool = False) -> str:
    found = _text(arguments, name, longest, line=line)
    if not found:
        raise InvalidInput(f"Missing required '{name}' parameter.", f"Give a text of 1 to {longest:,} characters.")
    return found


def _text(arguments: Arguments, name: str, longest: int, *, line: bool = False) -> str:
    found = arguments.get(name)
    return "" if found is None else _sound(found, f"'{name}'", longest, line=line)


def _sound(found: object, name: str, longest: int, *, line: bool) -> str:
    if not isinstance(found, str) or len(found) > longest:
        raise InvalidInput(f"{name} is not a text of at most {longest:,} characters.", "Shorten it.")
    if "\0" in found or found.encode(errors="replace").decode() != found:
        raise InvalidInput(f"{name} contains a NUL or an incomplete character.", "Take it out.")
    if line and len(found.splitlines()) > 1:
        raise InvalidInput(f"{name} has more than one line.", "Put the rest into 'question'.")
    return found.strip()


def _options(found: object) -> tuple[str, ...]:
    if found is None:
        return ()
    if not isinstance(found, list) or len(found) > MOST_OPTIONS:
        raise InvalidInput(f"'options' is not a list of at most {MOST_OPTIONS} texts.", "Ask for fewer at a time.")
    options = tuple(_sound(one, f"Option {n}", LONGEST_LABEL, line=True) for n, one in enumerate(found, start=1))
    if "" in options or len(set(options)) < len(options):
        raise InvalidInput("Two of 'options' are the same, or one is empty.", "Give each a text of its own.")
    return options


def _flag(arguments: Arguments, name: str) -> bool:
    found = arguments.get(name)
    if found is not None and not isinstance(found, bool):
        raise InvalidInput(f"'{name}' is neither true nor false.", "Give one of them, or leave it out.")
    return bool(found)


def _timeout(found: object) -> float:
    if found is None:
        return STANDARD
    if isinstance(found, bool) or not isinstance(found, int | float) or not SHORTEST <= found <= LONGEST:
        raise InvalidInput(f"'timeout' must be a number from {SHORTEST} to {LONGEST}.", f"Leave it out for {STANDARD}.")
    return float(found)


def _urgency(found: object) -> Urgency:
    known = get_args(Urgency)
    if found is not None and found not in known:
        raise InvalidInput("'urgency' is not one of its words.", f"Choose from: {', '.join(known)}.")
    return cast("Urgency", found or "normal")
