"""Run the checks: `python -m tests.run test|verify|long` runs that table, `... total` adds up what was run.

A few tests that failed beside other steps are run once more by themselves at the end: what then passes counts, and is
named. Prints one table, then every skip with its reason, how long all of it took, then as its last line `N passed, N
failed` over the pytest steps. Writes build/verdict.json {commit, seed, machine, figures, steps}. Ends with 1 if
anything failed, also for a skip that tests/skips.txt does not excuse. A test adds a figure by writing
build/figures/<name>.json.
"""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.rig.changes import changed_files, is_below

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
BIN = Path(sys.executable).parent
CODE = ("butlers", "switchboard", "messenger", "shared", "migrations", "tests")


@dataclass(frozen=True, slots=True)
class Step:
    """One command, the seconds it may take, if it is pytest the paths it collects, and what calls for it.

    A step with `where` runs only if one of these files and folders was changed.
    """

    name: str
    command: tuple[str, ...]
    timeout: float
    paths: tuple[str, ...] = ()
    where: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step ended; `skips` are (node id, reason), `failures` and `at_second` node ids.

    `at_second` failed beside other steps and passed by themselves.
    """

    table: str
    name: str
    result: str
    seconds: float
    passed: int = 0
    failed: int = 0
    skips: list[tuple[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    at_second: list[str] = field(default_factory=list)


def tool(name: str, *arguments: str, timeout: float = 120, label: str | None = None) -> Step:
    """A step that runs a program of this environment."""
    return Step(label or name, (str(BIN / name), *arguments), timeout)


def suite(
    name: str,
    *paths: str,
    timeout: float,
    only: str = "not slow",
    options: tuple[str, ...] = (),
    where: tuple[str, ...] = (),
) -> Step:
    """A step that runs pytest over these paths."""
    return Step(name, (str(BIN / "pytest"), "-q", "-m", only, *options, *paths), timeout, paths, where)


def area(name: str, *, where: tuple[str, ...] = ()) -> Step:
    """A step that runs one folder of the integration tests."""
    return suite(name, f"tests/integration/{name}", timeout=900, where=where and (*where, f"tests/integration/{name}"))


def areas(name: str, *folders: str) -> Step:
    """A step that runs a few of these folders, which then start one PostgreSQL and import what they need once."""
    return suite(name, *(f"tests/integration/{folder}" for folder in folders), timeout=1200)


def planted(wanted: str, timeout: float, share: str = "1/1") -> Step:
    """A step that tries so many planted bugs, a twelfth of them, or all; or the share of these that is named so."""
    path, name = "tests/planted", "planted" if share == "1/1" else f"planted-{share[0]}"
    return Step(name, (str(BIN / "pytest"), "-q", f"--planted={wanted}", f"--share={share}", path), timeout, (path,))


# What is asked of a fleet in all its shapes.
SHAPED = ("tests/acceptance", "tests/contract")
# What has whole fleets and runs beside the folder of acceptance.
FLEETS = ("tests/attacks", "tests/chaos", "tests/story", "tests/contract")

# What calls for the timekeeper's tests, which nothing else touches.
TIMEKEEPER = (
    "butlers/modules/manictime",
    "tests/manictime",
    "butlers/daemon/mcp_server.py",
    "butlers/cli/manictime.py",
)

# Whole programs and agents, and what calls for them in `make test`.
STARTED = (
    "tests/integration/cli/test_bad_start.py",
    "tests/integration/cli/test_bad_input.py",
    "tests/attacks/test_46_foreign_homes.py",
    "tests/integration/runtime/test_story.py",
)
STARTS = ("butlers/cli", "butlers/setup", "butlers/runtime", "shared/postgres", "shared/home_folder.py", *STARTED)

# Files are made there twenty times as fast as on a disk.
MEMORY = Path("/dev/shm")
ROOM = 8 << 30
# So many tests of a step may fail by the noise of other steps; where more do, something is broken.
FEW = 5

# A step's timeout ends what hangs: it is several times what a busy machine of two cores takes.
# Most tests wait as much as they compute, so three or four steps at once use two cores; the longest begin first.
AT_ONCE = {"test": 4, "verify": 3, "long": 2}
# Where two Switchboards and two Messengers stand in for each other: elsewhere their answers are those of one.
STAND_IN = "test_outages or test_faults or test_uncertain or test_keys"
IN_TWO = f"{STAND_IN} or every_mode or contract"
# What is played in part, or not at all, but for `long`: docs/testing.md says why.
WHOLE = tuple(
    f"tests/{name}"
    for name in ("acceptance", "attacks", "chaos", "integration", "manictime", "models", "story", "unit")
)
# Seconds each table is to take on two quiet cores, so that both are done with an installation in 25 minutes.
BARS = {"test": 240, "verify": 1200}
# A campaign uses all there is, and a bench wants a machine of its own: they come when the others are done.
ALONE = {("verify", "campaign"), ("verify", "bench")}
TABLES: dict[str, tuple[Step, ...]] = {
    "test": (
        tool("ruff", "check", ".", label="lint"),
        tool("ruff", "format", "--check", ".", label="format"),
        suite("acceptance", "tests/acceptance", timeout=1200),
        areas("daemons", "daemon", "cli", "runtime", "sessions"),
        areas("rows", "database", "console"),
        areas("delivery", "delivery", "channels"),
        area("gate"),
        planted("2", timeout=1800),
        suite("fleets", *FLEETS, timeout=900, options=("--every=30",)),
        tool("mypy", *CODE[:-1], timeout=600, label="types"),
        suite("unit", "tests/unit", "tests/models", timeout=600),
        suite("starts", *STARTED, timeout=600, only="slow", where=STARTS),
        area("postgres", where=("shared/postgres",)),
        area("sandbox", where=("messenger/sandbox",)),
        suite("timekeeper", "tests/manictime", timeout=300, where=TIMEKEEPER),
        tool("lint-imports", "--no-logo", label="imports"),
    ),
    "verify": (
        planted("twelfth", timeout=3600),
        suite("verify", "tests/verify", timeout=3600, only=""),
        suite("slow-fleets", "tests/acceptance", timeout=1800, only="slow"),
        suite("slow", "tests/integration", "tests/story", timeout=1800, only="slow"),
        suite("attacks", "tests/attacks", timeout=1800, only="", options=("--modes=each", "-k", "test_class")),
        suite("evils", "tests/chaos", timeout=1800, only="slow", options=("-k", "not test_a_campaign")),
        suite("slow-attacks", "tests/attacks", timeout=1800, only="slow"),
        suite("each", *SHAPED, timeout=1800, only="", options=("--more-modes=each",)),
        suite("browser", "tests/browser", timeout=600, only=""),
        suite("two", *SHAPED, timeout=900, only="", options=("--more-modes=two", "-k", IN_TWO)),
        area("postgres"),
        suite("timekeeper", "tests/manictime", timeout=900, only=""),
        suite("desk", "tests/desk", timeout=600, only=""),
        area("sandbox"),
        tool("mypy", timeout=600, label="types"),
        tool("python", "-m", "tests.bench.quick", timeout=180, label="bench"),
        suite("campaign", "tests/chaos", timeout=1500, only="slow", options=("-k", "test_a_campaign and not cold")),
    ),
    "long": (
        planted("all", timeout=7200, share="1/2"),
        planted("all", timeout=7200, share="2/2"),
        suite("whole", *WHOLE, timeout=7200, only="whole", options=("--whole",)),
        suite("two", "tests/acceptance", timeout=1800, only="", options=("--more-modes=two",)),
        suite("attacks", "tests/attacks", timeout=1800, only="", options=("--modes=one,two", "-k", "test_class")),
        suite("cold", "tests/chaos", timeout=1800, only="slow", options=("-k", "from_cold")),
        suite("long", "tests/long", timeout=86_400, only=""),
    ),
}


def present(steps: Sequence[Step], changed: AbstractSet[str] | None = None) -> Iterator[Step]:
    """The steps whose tests exist and that what was changed calls for; a folder without a test is no step."""
    for step in steps:
        if changed is not None and step.where and not is_below(changed, step.where):
            continue
        paths = tuple(path for path in step.paths if (ROOT / path).is_file() or any((ROOT / path).rglob("test_*.py")))
        if not step.paths:
            yield step
        elif paths and (not step.name.startswith("slow") or any_slow(paths)):
            command = tuple(word for word in step.command if word not in step.paths or word in paths)
            yield replace(step, command=command, paths=paths)


def any_slow(paths: Sequence[str]) -> bool:
    """Whether a test below these paths is marked slow."""
    return any(
        "mark.slow" in file.read_text(encoding="utf-8") for path in paths for file in (ROOT / path).rglob("test_*.py")
    )


def run_step(table: str, step: Step, seed: int) -> Outcome:
    """Run one step to its end or its timeout; what it printed is kept in build/logs and shown if it failed."""
    log = BUILD / "logs" / f"{table}-{step.name}.log"
    report = BUILD / "reports" / f"{table}-{step.name}.xml"
    for path in (log, report):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    print(f"... {step.name}", flush=True)
    command = list(step.command)
    if step.paths:
        command += [f"--junitxml={report}", f"--hypothesis-seed={seed}"]
    started = time.monotonic()
    with log.open("wb") as sink:
        ended = run_command(command, sink.fileno(), step.timeout)
    seconds = round(time.monotonic() - started, 1)
    result = "timeout" if ended is None else "ok" if ended == 0 else "failed"
    passed, failures, skips = read_report(report) if step.paths else (0, [], [])
    failed = len(failures)
    if step.paths and result != "ok" and not failed:
        failed = 1  # it broke before or outside a test
    if result != "ok":
        print(f"--- {step.name}: {' '.join(step.command)}\n{tail(log)}", flush=True)
    return Outcome(table, step.name, result, seconds, passed, failed, skips, failures)


def once_more(step: Step, first: Outcome, seed: int) -> Outcome:
    """Run by themselves the few tests that failed beside other steps; what fails again, or hung, stays failed."""
    if first.result != "failed" or not 0 < len(first.failures) <= FEW:
        return first
    words = [word for word in step.command if word not in step.paths]
    again = run_step(first.table, replace(step, name=f"{step.name}-again", command=(*words, *first.failures)), seed)
    return replace(
        first,
        result=again.result,
        seconds=round(first.seconds + again.seconds, 1),
        passed=first.passed + again.passed,
        failed=again.failed,
        failures=again.failures,
        at_second=[node for node in first.failures if node not in again.failures] if again.passed else [],
    )


def run_command(command: Sequence[str], sink: int, timeout: float) -> int | None:
    """The exit code, or None if it took too long: then it and all it started in its session are ended."""
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
    ) as process:
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def prepared() -> Iterator[None]:
    """Give all steps a fast place for what they write, and the PostgreSQL that each of them copies.

    Hundreds of processes import the same files, ours and the tests: the first compiles them for all, whatever is set.
    """
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    if is_roomy(MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
    with tempfile.TemporaryDirectory(prefix="butlers-") as folder:
        Path(folder).chmod(0o755)
        subprocess.run([sys.executable, "-m", "tests.rig.cluster", folder], cwd=ROOT, check=False)
        os.environ["PREPARED_CLUSTER"] = folder
        yield


def is_roomy(folder: Path) -> bool:
    """Whether programs may run from this folder, and what the tests of a run write has room in it."""
    if not folder.is_dir() or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free > ROOM


def read_report(report: Path) -> tuple[int, list[str], list[tuple[str, str]]]:
    """How many tests passed, which failed, and which were skipped why, from a JUnit file."""
    if not report.exists():
        return 0, [], []
    passed = 0
    failures: dict[str, None] = {}  # a test that fails and whose fixture then fails is one
    skips = []
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 our own pytest wrote it
        node = f"{(case.get('classname') or '').replace('.', '/')}.py::{case.get('name')}"
        skipped = case.find("skipped")
        if skipped is not None:
            skips.append((node, skipped.get("message") or "no reason given"))
        elif case.find("failure") is not None or case.find("error") is not None:
            failures[node] = None
        else:
            passed += 1
    return passed, list(failures), skips


def tail(log: Path, lines: int = 80) -> str:
    """The end of what a step printed."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def excused(skips_file: Path) -> list[tuple[str, str]]:
    """The (pattern, reason) lines of tests/skips.txt."""
    found = []
    for line in skips_file.read_text(encoding="utf-8").splitlines():
        pattern, dashes, reason = line.partition(" -- ")
        if dashes and reason.strip() and not line.startswith("#"):
            found.append((pattern.strip(), reason.strip()))
    return found


def unexcused(outcomes: Sequence[Outcome], allowed: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The skips that no line excuses. A name's own brackets are taken literally."""
    return [
        (node, reason)
        for outcome in outcomes
        for node, reason in outcome.skips
        if not any(node == pattern or fnmatch(node, pattern.replace("[", "[[]")) for pattern, _ in allowed)
    ]


def commit() -> str:
    """The commit checked, with `+` if files differ from it; `none` before the first."""
    head = git("rev-parse", "--verify", "--quiet", "HEAD")
    return "none" if not head else head + ("+" if git("status", "--porcelain") else "")


def git(*arguments: str) -> str:
    """What git answers, empty if it does not."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def write_verdict(outcomes: Sequence[Outcome], seed: int) -> None:
    """Write build/verdict.json, keeping the other tables' steps of the same commit."""
    verdict = BUILD / "verdict.json"
    checked = commit()
    kept = json.loads(verdict.read_text()) if verdict.exists() else {}
    tables = {outcome.table for outcome in outcomes}
    earlier = [step for step in kept.get("steps", []) if kept.get("commit") == checked and step["table"] not in tables]
    figures = {path.stem: json.loads(path.read_text()) for path in sorted((BUILD / "figures").glob("*.json"))}
    content = {
        "commit": checked,
        "seed": seed,
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "platform": platform.platform()},
        "figures": figures,
        "steps": earlier + [asdict(outcome) for outcome in outcomes],
    }
    verdict.write_text(json.dumps(content, indent=1) + "\n")


def print_table(outcomes: Sequence[Outcome]) -> None:
    """One line per step: name, result, seconds, and the counts of pytest."""
    print(f"\n{'step':<14} {'result':<8} {'seconds':>8}  tests")
    for outcome in outcomes:
        counts = f"{outcome.passed} passed, {outcome.failed} failed, {len(outcome.skips)} skipped"
        told = counts if outcome.passed or outcome.failed or outcome.skips else ""
        print(f"{outcome.name:<14} {outcome.result:<8} {outcome.seconds:>8.1f}  {told}".rstrip())


def took(table: str, seconds: float) -> str:
    """How long a whole table took, and its bar if it has one."""
    bar = BARS.get(table)
    return f"{table} took {in_minutes(seconds)}" + (f", where {in_minutes(bar)} are wanted." if bar else ".")


def in_minutes(seconds: float) -> str:
    """Minutes and seconds as a clock shows them."""
    return "{}:{:02} min".format(*divmod(round(seconds), 60))


def run_table(table: str, only: Sequence[str]) -> int:
    """Run the steps of a table, all of them even after a failure; the exit code."""
    started = time.monotonic()
    seed = int(git("rev-parse", "--verify", "--quiet", "HEAD")[:8] or "0", 16)
    BUILD.mkdir(exist_ok=True)
    steps = [
        step for step in present(TABLES[table], None if only else changed_files()) if not only or step.name in only
    ]
    together = [step for step in steps if (table, step.name) not in ALONE]
    with prepared():
        with ThreadPoolExecutor(max_workers=AT_ONCE.get(table, 1)) as lanes:
            outcomes = list(lanes.map(lambda step: run_step(table, step, seed), together))
        outcomes += [run_step(table, step, seed) for step in steps if step not in together]
        ran = together + [step for step in steps if step not in together]
        outcomes = [once_more(step, outcome, seed) for step, outcome in zip(ran, outcomes, strict=True)]
    if not outcomes:
        print(f"There is nothing to run in `{table}` {' '.join(only)}.")
        return 1
    print_table(outcomes)
    allowed = excused(ROOT / "tests" / "skips.txt")
    for outcome in outcomes:
        for node, reason in outcome.skips:
            print(f"skipped {node}: {reason}")
        for node in outcome.at_second:
            print(f"failed beside other steps and passed by itself: {node}")
    strange = unexcused(outcomes, allowed)
    for node, _ in strange:
        print(f"not allowed to be skipped: {node}. Give it a line with a reason in tests/skips.txt, or make it run.")
    if not only:
        write_verdict(outcomes, seed)
        print(took(table, time.monotonic() - started))
    print(f"{sum(o.passed for o in outcomes)} passed, {sum(o.failed for o in outcomes) + len(strange)} failed")
    return 1 if strange or any(outcome.result != "ok" for outcome in outcomes) else 0


def total() -> int:
    """Add up the steps of all tables in build/verdict.json."""
    steps = json.loads((BUILD / "verdict.json").read_text())["steps"]
    broken = [step["name"] for step in steps if step["result"] != "ok"]
    if broken:
        print(f"not ok: {', '.join(broken)}")
    print(f"{sum(step['passed'] for step in steps)} passed, {sum(step['failed'] for step in steps)} failed")
    return 1 if broken else 0


def main(arguments: Sequence[str]) -> int:
    """`test|verify|long [STEP ...]` or `total`; the exit code."""
    match list(arguments):
        case ["total"]:
            return total()
        case [table, *only] if table in TABLES:
            return run_table(table, only)
        case _:
            print(f"Say one of: {', '.join([*TABLES, 'total'])}.")
            return 2


if __name__ == "__main__":
    # A shell's background job ignores Ctrl-C, and so would every child; some tests press it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a step under way is ended too
    sys.exit(main(sys.argv[1:]))
