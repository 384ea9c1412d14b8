"""The named failpoints stand where the code is, are all told apart, and nothing is armed by itself."""

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from shared.gate import admit, gather
from tests.chaos.crew import STOPPABLE, Schedule
from tests.rig.failpoints import (
    BY_NAME,
    FAILPOINTS,
    OURS,
    Failpoint,
    Seen,
    after,
    before,
    committing,
    found,
    imported,
    located,
)
from tests.rig.symbols import defined

ROOT = Path(__file__).resolve().parents[2]
ENOUGH = 60
NAME = re.compile(r"[a-z]+\.[a-z_]+")
# What a process does that has armed one: the second call never comes back.
PROGRAM = """
import sys
from tests.rig.failpoints import prepare
prepare(sys.argv[1:])
from butlers.tools import notify
print("first"); sys.stdout.flush()
notify.accept("health", {"channel": "telegram", "message": "tea"})
print("second")
"""


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(FAILPOINTS) >= ENOUGH
    assert all(NAME.fullmatch(name) for name in BY_NAME), sorted(BY_NAME)
    assert {one.daemon for one in FAILPOINTS} == {"butler", "switchboard", "messenger"}
    assert set(STOPPABLE) <= set(BY_NAME)


@pytest.mark.parametrize("failpoint", FAILPOINTS, ids=lambda one: one.name)
def test_it_stands_where_the_code_is(failpoint: Failpoint) -> None:
    owner, name = found(failpoint.site)
    assert callable(getattr(owner, name))
    if failpoint.commit:
        assert ".work()" in Path(sys.modules[located(failpoint.site).partition(":")[0]].__file__ or "").read_text()


def test_what_they_must_be_within_are_functions_of_ours() -> None:
    ours = {name for package in OURS for path in (ROOT / package).rglob("*.py") for name in defined(path)}
    assert {one.within for one in FAILPOINTS} - {None} <= ours


def test_the_product_knows_of_none() -> None:
    told = subprocess.run(
        ["git", "grep", "-il", "failpoint", "--", "butlers", "messenger", "shared", "switchboard", "migrations"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout == ""


@pytest.mark.parametrize(("nth", "code"), [("1", -9), ("2", 0)])
def test_an_armed_process_ends_itself_at_the_nth_time_and_not_before(nth: str, code: int) -> None:
    words = ["accept.accepted", nth, "kill"]
    ran = subprocess.run([sys.executable, "-c", PROGRAM, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stderr
    assert ran.stdout.splitlines() == (["first", "ends at accept.accepted"] if code else ["first", "second"])


def test_a_function_is_watched_wherever_it_was_imported_to_and_an_import_only_there() -> None:
    places = imported(gather.gather, gather)
    assert (admit, "gather") in places
    assert (gather, "gather") in places
    assert imported(gather.gather, admit) == []


def test_of_several_that_are_armed_the_first_one_reached_is_told() -> None:
    words = ["accept.accepted", "2", "kill", "accept.accepted", "1", "stop"]
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True) as ran:
        assert ran.stdout is not None
        assert [ran.stdout.readline() for _ in range(2)] == ["first\n", "stands at accept.accepted\n"]
        os.waitid(os.P_PID, ran.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # it says so a moment before it stands
        ran.send_signal(signal.SIGCONT)
        assert ran.stdout.read() == "second\n"
    assert ran.returncode == 0


@asynccontextmanager
async def work(database: object) -> AsyncIterator[object]:
    """A unit of work that commits nothing."""
    yield database


async def holds_open(begin: Callable[[object], AbstractAsyncContextManager[object]]) -> None:
    """Whoever commits, as a failpoint's site names it."""
    async with begin(None):
        pass


def _told(reached: list[str], name: str, _seen: Seen, _frame: FrameType | None) -> None:
    reached.append(name)


async def test_several_commits_are_watched_at_once() -> None:
    reached: list[str] = []
    watched: Callable[[object], AbstractAsyncContextManager[object]] = work
    site = f"{__name__}:{holds_open.__name__}"
    ones = (("a.second", site, after), ("a.never", "elsewhere:other", after), ("a.first", site, before))
    for name, where, moment in ones:
        failpoint = moment(name, "butler", where, commit=True)
        watched = committing(watched, failpoint, partial(_told, reached, name))
    await holds_open(watched)
    assert reached == ["a.first", "a.second"]


def test_a_schedule_takes_those_first_that_were_hit_least() -> None:
    schedule = Schedule(random.Random(1), ["claim.taken_after_commit", "settle.part", "route.read"])
    seen: list[str] = []
    for _ in range(4):
        [armed] = schedule.next("messenger")
        seen.append(armed.name)
        schedule.hit(armed.name)
    assert seen[0] != seen[1]
    assert sorted(seen[:2]) == sorted(seen[2:]) == ["claim.taken_after_commit", "settle.part"]
    assert schedule.missing() == ["route.read"]
    assert schedule.next("console") == ()


def test_a_schedule_adds_what_is_rare_and_in_mopping_up_arms_all_that_is_missing() -> None:
    schedule = Schedule(random.Random(1), ["reap.written", "settle.part", "settle.told", "route.read"], least=2)
    for name in ("settle.part", "settle.part", "settle.told", "route.read", "route.read"):
        schedule.hit(name)
    assert "reap.written" in [armed.name for armed in schedule.next("messenger")]
    schedule.mopping = True
    assert {armed.name for armed in schedule.next("messenger")} == {"reap.written", "settle.told"}
    assert schedule.next("switchboard") == ()
    for name in ("settle.told", "reap.written", "reap.written"):
        schedule.hit(name)
    assert schedule.next("messenger") == ()
