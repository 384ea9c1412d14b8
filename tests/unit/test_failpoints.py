"""The named failpoints stand where the code is, are all told apart, and nothing is armed by itself."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.crew import STOPPABLE, Schedule
from tests.rig.failpoints import BY_NAME, FAILPOINTS, Armed, Failpoint, found

ROOT = Path(__file__).resolve().parents[2]
ENOUGH = 60
NAME = re.compile(r"[a-z]+\.[a-z_]+")
# What a process does that has armed one: the second call never comes back.
PROGRAM = """
import sys
from tests.rig.failpoints import prepare
prepare(sys.argv[1:])
from shared import keys
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
        assert ".work()" in Path(sys.modules[failpoint.site.partition(":")[0]].__file__ or "").read_text()


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
    assert ran.stdout.split() == (["first"] if code else ["first", "second"])


def test_a_schedule_takes_those_first_that_were_hit_least() -> None:
    schedule = Schedule(random.Random(1), ["claim.taken_after_commit", "settle.part", "route.read"])
    seen: list[str] = []
    for _ in range(4):
        armed = schedule.next("messenger")
        assert isinstance(armed, Armed)
        seen.append(armed.name)
        schedule.hit(armed.name)
    assert seen[0] != seen[1]
    assert sorted(seen[:2]) == sorted(seen[2:]) == ["claim.taken_after_commit", "settle.part"]
    assert schedule.missing() == ["route.read"]
    assert schedule.next("console") is None
