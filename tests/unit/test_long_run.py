"""The long campaign's sum, its table in the docs, and that the two say the same."""

import json
import re
from collections import Counter
from pathlib import Path
from random import Random
from statistics import median

import pytest

from tests.chaos.recovery import in_order, recovery, waits
from tests.chaos.verdict import PROMISES, by_promise
from tests.long.recording import BEGIN, CAMPAIGNS, DOCUMENT, END, NOT_YET, PLAIN, record, rows, section, table
from tests.long.state import ADDED, FIGURES, TRIED, product, total
from tests.rig.failpoints import FAILPOINTS

CALLS, KILLS, RESTARTS, HITS = 100_000, 10_000, 200, 25
NEVER = tuple(PROMISES)


def part(kills: int) -> dict[str, object]:
    """What one campaign leaves, as far as it is added up."""
    waited = {"0.3": kills - 1, "9.5": 1}
    return {
        **dict.fromkeys(ADDED, 0),
        "kills": kills,
        "wrong": [],
        "calls": 10 * kills,
        "lost_leases": 10,
        "lost_leases_unsent": 1,
        "lost_leases_unaimed": 8,
        "lost_leases_unaimed_unsent": 0,
        "seconds_of_blows": 60.5,
        "failpoints": {one.name: 1 for one in FAILPOINTS},
        "stops": {"claim.taken_after_commit": 2, "at random": 5},
        "in_hand_of_the_dead": {"card sending": 3, "nothing": 4},
        "waits_after_kill": waited,
    }


def test_the_sum_is_that_of_all_parts_and_its_times_those_of_all_blows() -> None:
    whole = total([part(100), part(300)])
    assert (whole["parts"], whole["broken_parts"], whole["kills"], whole["calls"]) == (2, 0, 400, 4000)
    assert whole["failpoints"] == {one.name: 2 for one in FAILPOINTS}
    assert whole["in_hand_of_the_dead"] == {"card sending": 6, "nothing": 8}
    assert whole["recovery_after_kill"] == {"median": 0.3, "p99": 0.3, "most": 9.5}
    assert whole["recovery_after_restart"] == {}
    assert whole["seconds_of_blows"] == 121


def test_a_part_that_broke_is_counted_and_a_figure_that_is_missing_is_no_zero() -> None:
    assert total([part(100), {**part(100), "wrong": ["sent twice"]}])["broken_parts"] == 1
    with pytest.raises(KeyError):
        total([{name: figure for name, figure in part(100).items() if name != "lost"}])


def test_times_are_counted_in_tenths_and_read_off_again() -> None:
    rng = Random(4)
    given = [round(rng.expovariate(1), 1) for _ in range(1001)]
    assert recovery(Counter(given)) == {
        "median": median(given),
        "p99": sorted(given)[990],
        "most": max(given),
    }
    assert waits([10.0, 11.0, 12.0], [10.26, 11.5]) == {0.3: 1, 0.5: 1}
    assert list(in_order(Counter([10.5, 9.5, 9.5]))) == ["9.5", "10.5"]


@pytest.mark.parametrize(
    ("told", "promise"),
    [
        ("acknowledged as queued and lost: a", "lost"),
        ("left open as queued with a delivery None: a", "lost"),
        ("admitted 2 times: a", "twice"),
        ("sent 2 times to a third party: a", "twice"),
        ("sent to a third party without authority: a", "without_authority"),
        ("sent without a receipt: a", "without_receipt"),
        ("ok with a receipt ('1',) nobody gave: a", "without_receipt"),
        ("failed, yet it arrived: a", "untrue"),
        ("sent to ['1'] instead of 2: a", "untrue"),
    ],
)
def test_each_broken_promise_is_counted_by_its_kind(told: str, promise: str) -> None:
    assert by_promise([told]) == {**dict.fromkeys(NEVER, 0), promise: 1}


def test_what_is_tried_has_a_name_of_its_own_by_its_content() -> None:
    assert re.fullmatch(r"[0-9a-f]{16}", product())
    assert product() == product()
    assert "docs" not in TRIED


def test_a_record_goes_between_its_marks_and_can_be_replaced(tmp_path: Path) -> None:
    document, figures = tmp_path / "delivery.md", tmp_path / "figures.json"
    document.write_text(f"before\n{BEGIN}{NOT_YET}{END}after\n")
    told = ""
    for kills in (100, 200):
        figures.write_text(json.dumps({"product": "0123456789abcdef", **total([part(kills)])}))
        told = record(figures, document)
        assert document.read_text() == f"before\n{BEGIN}{told}{END}after\n"
    assert rows(told)["SIGKILLs"] == "200"
    assert rows(told)["false alarms among these"] == "10.0 % of 10"
    assert rows(told)["false alarms among those before all deaths were aimed"] == "0.0 % of 8"
    assert rows(told)["from a SIGKILL to the next receipt: median, 99 %, most"] == "0.3 s, 0.3 s, 9.5 s"
    assert rows(told)["killed with `card sending` in hand"] == "3"


def number(told: str) -> float:
    """The first number of a cell."""
    found = re.search(r"\d[\d,]*(?:\.\d+)?", told)
    assert found, told
    return float(found[0].replace(",", ""))


def wrong_in(told: str) -> list[str]:
    """What a recorded table says that must not be, or does not say; nothing where there is no record."""
    if told == NOT_YET:
        return []
    said = rows(told)
    wrong = [f"no row: {words}" for words in (CAMPAIGNS, *PLAIN) if words not in said]
    if wrong:
        return wrong
    figures = {name: number(said[words]) for words, name in PLAIN.items()}
    wrong += [f"{name} is not 0" for name in NEVER if figures[name]]
    if not re.fullmatch(r"[1-9]\d*, 0", said[CAMPAIGNS]):
        wrong.append("a campaign broke")
    least = {"kills": KILLS, "restarts": RESTARTS, "calls": CALLS}
    wrong += [f"{name} is less than {count}" for name, count in least.items() if figures[name] < count]
    order = ("kills_at_failpoints", "kills"), ("lost_leases_unsent", "lost_leases"), ("lost_leases", "uncertain")
    wrong += [f"{few} is more than {many}" for few, many in order if figures[few] > figures[many]]
    moments = re.fullmatch(r"\d+, `[\w.]+` (\d+) times", said["named moments, and the least often reached"])
    if moments is None or int(moments[1]) < HITS:
        wrong.append(f"a named moment was reached less than {HITS} times")
    return wrong


def test_the_docs_table_is_whole_and_keeps_the_promises() -> None:
    told = section(DOCUMENT.read_text(encoding="utf-8"))
    assert wrong_in(told) == []
    if FIGURES.exists() and f"`{json.loads(FIGURES.read_text())['product']}`" in told:
        assert told == table(json.loads(FIGURES.read_text()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kills", 9_999),
        ("restarts", 199),
        ("calls", 99_999),
        ("broken_parts", 1),
        ("twice", 1),
        ("lost", 1),
        ("failpoints", {}),
    ],
)
def test_a_table_that_breaks_a_promise_is_seen(name: str, value: object) -> None:
    good: dict[str, object] = {"product": "0123456789abcdef", **total([part(KILLS)]), "restarts": RESTARTS}
    good |= {"uncertain": 40, "failpoints": {one.name: HITS for one in FAILPOINTS}}
    assert wrong_in(table(good)) == []
    assert wrong_in(table({**good, name: value})) != []
