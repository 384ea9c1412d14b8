"""What the timekeeper tells in words: which time a question means, a day with its bar, a moment."""

from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path

import pytest

from butlers.butler import ToolCall
from butlers.modules.manictime.fixture import Record
from butlers.modules.manictime.forms import APPS, DOCS, USAGE
from butlers.modules.manictime.tools.recall import Meant, meant, recall_over
from butlers.modules.manictime.tools.screenshots import Desk
from shared.display.day_bar import DayBar, day_bar
from tests.manictime.desks import CALLER, at, desk_over, recorded

pytestmark = pytest.mark.asyncio
MONDAY, SUNDAY, FRIDAY = date(2025, 1, 20), date(2025, 1, 19), date(2025, 1, 17)
NOW = datetime(2025, 1, 20, 18, 30)  # noqa: DTZ001  # what the local clock shows


@pytest.mark.parametrize(
    ("question", "day", "clocks"),
    [
        ("today", MONDAY, []),
        ("Yesterday", SUNDAY, []),
        ("How was 2025-01-17?", FRIDAY, []),
        ("For two hours, or about 2 hours, or 3 of them?", MONDAY, []),
        ("/timekeeper what was I doing at four?", MONDAY, ["16:00", "04:00"]),
        ("At 9am?", MONDAY, ["09:00"]),
        ("at seven", MONDAY, ["07:00"]),
        ("at eleven pm", SUNDAY, ["23:00"]),
        ("And on Friday around noon?", FRIDAY, ["12:00"]),
        ("on Monday at eleven pm", date(2025, 1, 13), ["23:00"]),
        ("on Monday at four", MONDAY, ["16:00", "04:00"]),
        ("quarter to ten yesterday", SUNDAY, ["21:45", "09:45"]),
        ("2025-01-17 at 16:05, not at 3", FRIDAY, ["15:00", "03:00"]),
        ("2025-01-17T04:20:00", FRIDAY, ["04:20"]),
        ("at 25", MONDAY, []),
        ("(said at 08:01)\nwhat was I doing at 04:10", MONDAY, ["04:10"]),
    ],
)
async def test_words_mean_a_day_or_a_moment(question: str, day: date, clocks: Sequence[str]) -> None:
    """An hour without its half of the day is the later that has come; the last time that is named counts."""
    found = meant(question, NOW)
    assert found == Meant(day, tuple(int(one[:2]) * 60 + int(one[3:]) for one in clocks))


async def told(desk: Desk, question: str, now: datetime = NOW) -> tuple[dict[str, object], list[DayBar]]:
    """What the tool answers, and which bars it keeps."""
    kept = list[DayBar]()

    async def keep(bar: DayBar) -> None:
        kept.append(bar)

    clock: Callable[[], float] = now.replace(tzinfo=desk.zone).timestamp
    made = await recall_over(desk, keep, clock).handler(ToolCall(CALLER, {"question": question}))
    assert made.answer is not None, made.blocks
    return dict(made.answer), kept


async def test_a_day_is_a_bar_of_its_half_hours_and_sums(desk: Desk) -> None:
    made, [bar] = await told(desk, "today")
    head, drawn, tops, longest = str(made["text"]).split("\n")
    assert head.startswith("Monday 20 January 2025: 8 h ")
    assert drawn == made["bar"] == bar.text
    assert tops.startswith("Visual Studio Code ")
    assert "to" in longest
    assert (made["date"], day_bar(bar.kept)) == ("2025-01-20", bar)


async def test_the_bar_counts_each_active_moment_once(tmp_path: Path) -> None:
    """Two windows at once are one time; what runs while nobody is there is none."""
    record = Record("A")
    record.add(USAGE, 1, at(9), 3600 + 450)
    for group in (1, 2):
        record.add(APPS, group, at(9, 0), 7200)
    made, [bar] = await told(recorded(tmp_path, record), "2025-01-15")
    assert bar.text == "09 ██▂· 11"
    assert str(made["text"]).startswith("Wednesday 15 January 2025: 1 h 8 min")


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ("at four", "At 16:00 on Monday 20 January 2025: "),
        ("at 12:40", "At 12:40 on Monday 20 January 2025 nothing is recorded; nearest is: "),
        ("at 7 today", "Nothing is recorded at 07:00 on Monday 20 January 2025."),
        ("at four on Sunday", "Nothing is recorded at 16:00 or 04:00 on Sunday 19 January 2025."),
    ],
)
async def test_a_moment_is_told_in_a_sentence(real: Path, question: str, says: str) -> None:
    made, kept = await told(desk_over(real), question)
    assert str(made["text"]).startswith(says)
    assert "\n" not in str(made["text"])
    assert kept == []


async def test_a_moment_names_the_place_of_then_and_a_stretch_none(tmp_path: Path) -> None:
    """One browser goes from one website to the next, and one editor from file to file; a switch of seconds is none."""
    record = Record("A")
    record.add(USAGE, 1, at(14), 4 * 3600)
    for group, place, start, seconds in ((2, 3, at(14), 600), (2, 4, at(14, 10), 7200), (1, 2, at(16, 30), 3600)):
        record.add(APPS, group, start, seconds)
        record.add(DOCS, place, start, seconds)
    record.add(APPS, 2, at(17, 30), 20)
    record.add(APPS, 1, at(17, 30, 20), 600)
    desk = recorded(tmp_path, record)
    made, _ = await told(desk, "2025-01-15 at 17:30")
    assert str(made["text"]).endswith(": Visual Studio Code, 16:30 to 17:40.")
    for clock, where in (("14:05", "github.com"), ("16:00", "docs.example.org"), ("17:00", "main.py")):
        made, _ = await told(desk, f"2025-01-15 at {clock}")
        assert f", {where}, " in str(made["text"])
    made, _ = await told(desk, "2025-01-15")
    assert str(made["text"]).endswith("Longest at a stretch: Google Chrome, 14:00 to 16:10.")


async def test_a_name_that_breaks_lines_stays_on_one_and_is_cut(tmp_path: Path) -> None:
    record = Record("A")
    record.add(USAGE, 1, at(9), 3600)
    record.add(APPS, None, at(9), 3600, title="A\n\nPaid: 100 " + "x" * 500)
    made, _ = await told(recorded(tmp_path, record), "2025-01-15 at 9:30")
    assert made["text"] == f"At 09:30 on Wednesday 15 January 2025: A Paid: 100 {'x' * 47}…, 09:00 to 10:00."


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"date": "2025-01-20"},
        {"date": "today", "seconds": [0] * 48},
        {"date": "2025-01-20", "seconds": [0] * 47},
        {"date": "2025-01-20", "seconds": [0] * 47 + [1801]},
        {"date": "2025-01-20", "seconds": [0] * 47 + ["<b>"]},
        {"date": "2025-01-20", "seconds": [0] * 47 + [True]},
    ],
)
async def test_a_kept_value_that_is_no_bar_is_none(value: object) -> None:
    assert day_bar(value) is None


@pytest.mark.parametrize(
    "question", ["", "\0", "\ud800 at four", "1 " * 20_000, "at" + " " * 40_000 + "4", "at 4" * 9_000]
)
async def test_any_text_is_answered(real: Path, question: str) -> None:
    made, _ = await told(desk_over(real), question)
    assert made["text"]


async def test_a_day_that_never_was_is_refused(real: Path) -> None:
    made = await recall_over(desk_over(real), _nothing, NOW.timestamp).handler(
        ToolCall(CALLER, {"question": "2025-02-30 at four"})
    )
    assert made.is_error
    assert "There is no day 2025-02-30." in made.blocks[0].text  # type: ignore[union-attr]  # an error is one text


async def _nothing(_: DayBar) -> None:
    """Keep nothing."""
