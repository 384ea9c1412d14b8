"""The runner of the checks: what it counts, what it lets pass, what it ends."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.rig.changes import changed_files, is_below
from tests.rig.waiting import LONGEST
from tests.run import (
    FEW,
    ROOT,
    TABLES,
    Outcome,
    Step,
    excused,
    main,
    once_more,
    present,
    read_report,
    run_command,
    took,
    unexcused,
)

REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_good"/>
<testcase classname="tests.unit.test_a" name="test_bad"><failure message="no"/></testcase>
<testcase classname="tests.unit.test_a" name="test_broken"><error message="no"/></testcase>
<testcase classname="tests.unit.test_a" name="test_off[x]"><skipped message="no chromium"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_counted(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    skip = ("tests/unit/test_a.py::test_off[x]", "no chromium")
    assert read_report(tmp_path / "report.xml") == (
        1,
        ["tests/unit/test_a.py::test_bad", "tests/unit/test_a.py::test_broken"],
        [skip],
    )
    assert read_report(tmp_path / "missing.xml") == (0, [], [])


@pytest.mark.parametrize(("second", "counted"), [("", ("ok", 5, 0, ["a.py::b"])), ("<failure/>", ("failed", 4, 1, []))])
def test_what_failed_beside_other_steps_is_run_once_by_itself(
    tmp_path: Path, second: str, counted: tuple[object, ...]
) -> None:
    pytest_s = tmp_path / "runs.py"
    pytest_s.write_text(f"""import sys
assert sys.argv[1] == "a.py::b", sys.argv
report = next(word for word in sys.argv if word.startswith("--junitxml=")).partition("=")[2]
open(report, "w").write('<testsuite><testcase classname="a" name="b">{second}</testcase></testsuite>')
sys.exit({1 if second else 0})
""")
    step = Step("runs", (sys.executable, str(pytest_s), "tests/unit"), 30, ("tests/unit",))
    first = Outcome("test", "runs", "failed", 1.0, 4, 1, failures=["a.py::b"])
    again = once_more(step, first, 0)
    assert (again.result, again.passed, again.failed, again.at_second) == counted
    hung = Outcome("test", "runs", "timeout", 1.0, 4, 1, failures=["a.py::b"])
    broken = Outcome("test", "runs", "failed", 1.0, 4, FEW + 1, failures=["a.py::b"] * (FEW + 1))
    assert [once_more(step, one, 0) for one in (hung, broken)] == [hung, broken]


def test_a_skip_needs_a_line_with_a_reason(tmp_path: Path) -> None:
    outcome = Outcome("test", "unit", "ok", 1.0, skips=[("tests/unit/test_a.py::test_off[x]", "no chromium")])
    lines = tmp_path / "skips.txt"
    for text, strange in (
        ("", 1),
        ("# tests/unit/test_a.py::* -- why", 1),
        ("tests/unit/test_a.py::test_off[x]", 1),
        ("tests/unit/test_a.py::test_off[x] -- ", 1),
        ("tests/unit/test_b.py::* -- why", 1),
        ("tests/unit/test_a.py::test_off[x] -- why", 0),
        ("tests/unit/test_a.py::test_off[* -- why", 0),
    ):
        lines.write_text(text)
        assert len(unexcused([outcome], excused(lines))) == strange, text


def test_a_command_gives_its_code_or_is_ended_with_its_children(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as sink:
        assert run_command([sys.executable, "-c", "raise SystemExit(3)"], sink.fileno(), 30) == 3
        child = "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
        for seconds in (1.5, 10, 60):  # on a busy machine it may be ended before it has a child
            assert run_command([sys.executable, "-c", child], sink.fileno(), seconds) is None
            if (tmp_path / "log").read_text():
                break
        pid = int((tmp_path / "log").read_text())
    deadline = time.monotonic() + LONGEST
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # it has gone just now, or nobody has such files here
        return True


def test_a_step_runs_where_something_calls_for_it() -> None:
    step = Step("lint", ("ruff",), 1, where=("shared/postgres", "README.md"))
    for changed, runs in (
        (None, True),
        ({"shared/postgres/server.py", "x"}, True),
        ({"README.md"}, True),
        ({"shared/postgresql.py", "docs/README.md"}, False),
        (set(), False),
    ):
        assert [*present([step], changed)] == ([step] if runs else []), changed


def test_each_file_of_tests_has_a_step_that_leaves_none_of_its_plain_tests_out() -> None:
    steps = [step for table in TABLES.values() for step in table]
    plain = [step for step in steps if not {"-k", "slow", "whole"} & {*step.command}]
    folders = {path for step in plain for path in step.paths}
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    assert [file for file in files if not is_below({file}, folders)] == []


def test_a_table_tells_how_long_it_took_and_what_is_wanted() -> None:
    assert took("test", 305.4) == "test took 5:05 min, where 4:00 min are wanted."
    assert took("long", 59.6) == "long took 1:00 min."


def test_what_the_last_commit_or_nobody_has_committed_is_changed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for name in ("first", "second", "third"):
        (tmp_path / name).touch()
        git("add", name)
        git("commit", "-m", name)
    (tmp_path / "fourth").touch()
    (tmp_path / "first").write_text("other")
    assert changed_files(tmp_path) == {"first", "third", "fourth"}


def test_a_folder_without_tests_is_no_step() -> None:
    steps = [
        Step("none", ("pytest", "tests/nothing_there"), 1, ("tests/nothing_there",)),
        Step("some", ("pytest", "tests/unit", "tests/nothing_there"), 1, ("tests/unit", "tests/nothing_there")),
        Step("lint", ("ruff",), 1),
    ]
    assert [(step.name, step.command) for step in present(steps)] == [
        ("some", ("pytest", "tests/unit")),
        ("lint", ("ruff",)),
    ]


@pytest.mark.parametrize("words", [[], ["nonsense"], ["total", "x"]])
def test_an_unknown_table_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "test, verify, long, total" in capsys.readouterr().out
