"""What a question of a butler looks like to the owner, on a card, a page or a terminal. Pure.

Its first line is ours and says what it is, so that no words of a butler make an approval of it; an answer in quotation
marks is the butler's word or the owner's, and never one of ours.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from shared.display.approval import titled
from shared.display.quotes import Quote, in_marks
from shared.display.visible import in_line
from shared.hashing import reference

DISMISS: Final = "Dismiss"
NOTHING_APPROVED: Final = "Your answer goes to that butler as information. It approves nothing."
SURFACES: Final[Mapping[str, str]] = {
    "telegram": "in Telegram",
    "console": "in the console",
    "cli": "on the command line",
    "desk": "at your desk",
}
LONGEST_ANSWER: Final = 10_000
LONGEST_TITLE: Final = 200
# Of a longer answer, and of a longer question, its butler is told the beginning.
LONGEST_ASKED: Final = 500
LONGEST_TOLD: Final = 3000
LATE: Final = "It had already been answered, or had ended."


class Row(Protocol):
    """A question's row, by column."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401  # of whichever type the column is
        """Return what the column holds."""
        ...


def asks(butler: str, question_id: str) -> str:
    """Return the first line of a question, which is never that of an approval."""
    return f"{titled(butler)} asks you a question (ref {reference(question_id)}). It is not an approval request."


def own_words(text: str) -> str | None:
    """Return an answer in the owner's own words as it is kept; None for one that is empty, too long or no text."""
    words = text.replace("\r\n", "\n").strip()
    is_text = "\0" not in words and words.encode(errors="replace").decode() == words
    return words if 0 < len(words) <= LONGEST_ANSWER and is_text else None


def place_of(row: Row) -> str:
    """Return what its butler says it is about, on one line; empty if nothing is said."""
    said: Mapping[str, Any] = row["about"]
    place = " @ ".join(str(said[name]) for name in ("repo", "branch") if said.get(name))
    rest = [f"{name}: {said[name]}" for name in ("agent", "task") if said.get(name)]
    return ", ".join(filter(None, [place, *rest]))


def labels(row: Row) -> Sequence[str]:
    """Return what can be chosen, in order: the options, or the one action without any."""
    return row["options"] or [row["action_label"]]


def offered(label: str) -> str:
    """Return a choice as a button says it: in quotation marks, so that it passes for no button of ours."""
    return f"“{in_line(label)}”"


def words(row: Row) -> tuple[Quote, ...]:
    """Return the butler's words as quotes."""
    place = place_of(row)
    return (
        Quote(row["title"], "Title"),
        *([Quote(place, "About")] if place else []),
        Quote(row["question"], "Question"),
    )


def what_became(row: Row) -> str:
    """Return what became of a question, in one sentence."""
    where = SURFACES.get(row["surface"] or "", "")
    if row["status"] == "withdrawn":
        return f"The question of {titled(row['origin_butler'])} was withdrawn."
    if row["status"] == "expired":
        return "Expired without an answer."
    if row["choice"] is None:
        return f"Dismissed {where}."
    return f"Answered {where}: {offered(row['choice'])}"


def told_of_answer(row: Row) -> str:
    """Return what its butler is told of an answer: outside quotation marks stand our words and the owner's alone.

    Whoever reads it may be a session that did not ask, so the question stands with it, last, as a list cuts its ends.
    """
    about = f"your question {in_marks(row['title'], LONGEST_TITLE)} (question_id {row['id']})"
    asked = f" You had asked: {in_marks(row['question'], LONGEST_ASKED)}"
    words = row["choice"]
    if words is None:
        return f"The owner dismissed {about}.{asked}"
    if not row["typed"]:
        return f"The owner chose {in_marks(words, LONGEST_TITLE)} for {about}.{asked}"
    cut = "… (cut; question_status has it whole)" if len(words) > LONGEST_TOLD else ""
    return f"The owner answered {about}: {words[:LONGEST_TOLD]}{cut}{asked}"
