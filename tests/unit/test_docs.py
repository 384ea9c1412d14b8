"""What the documents say exists: links, commands, settings, ports, functions, tables and their writers, figures."""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from butlers import fleet
from butlers.cli.app import build
from butlers.daemon.sockets import FIRST_BUTLER, OFFSETS, SANDBOX_IMAP, SANDBOX_SMTP
from shared.config.settings import Settings, dump
from tests.bench.figures import read, with_figures
from tests.rig.stages import stage_table, stages

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PACKAGES = ("butlers", "switchboard", "messenger", "shared")

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
COMMAND = re.compile(r"(?:^|[\s(]|--rm cli )(?:butlers |(?<=--rm cli ))((?:[\w.$\"<>-]+[ \n]?)+)")
VARIABLE = re.compile(r"\bBUTLERS_[A-Z_]+[A-Z]\b|\bDATABASE_URL(?:_FILE)?\b")
SETTING_ROW = re.compile(r"^\| `(\w+)` \| (?:`([^`]*)`)? ?\| .* \|( yes)? \|$", re.MULTILINE)
PORT_ROW = re.compile(r"^\| ([^|]+) \| (\d+) \| \+(\d+) \|$", re.MULTILINE)
WRITES = re.compile(r"(?:INSERT INTO|UPDATE|DELETE FROM)\s+((?:shared|messenger|switchboard|console)\.\w+)")
TABLE = re.compile(r"\b(?:shared|messenger|switchboard|console)\.[a-z_]+(?!\.?\w|/)")
LISTED = re.compile(r"`([a-z]+\.\w+)\(([^)]*)\)`")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code(document: str) -> Iterator[str]:
    """The fenced blocks, then the code spans outside them."""
    yield from FENCE.findall(document)
    yield from SPAN.findall(FENCE.sub("", document))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    links = [link.partition("#")[0] for link in LINK.findall(path.read_text(encoding="utf-8")) if ":" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_document_is_reached_from_the_readme() -> None:
    seen, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        path = waiting.pop().resolve()
        if path in seen:
            continue
        seen.add(path)
        if path.is_dir():
            waiting += path.glob("*.md")
        elif path.suffix == ".md":
            links = LINK.findall(path.read_text(encoding="utf-8"))
            waiting += [path.parent / link.partition("#")[0] for link in links if ":" not in link]
    assert [name_of(path) for path in DOCUMENTS if path.resolve() not in seen] == []


@cache
def program() -> Any:  # noqa: ANN401  # Typer's commands and groups are of two libraries
    """The command line, built once."""
    return typer.main.get_command(build())


def mistaken(words: Sequence[str]) -> str:
    """What the command line would not take of these words; empty if it would."""
    command = program()
    for word in words:
        inner: Mapping[str, Any] | None = getattr(command, "commands", None)
        if word in {"--help", "--version"}:
            return ""
        if inner is not None and word not in inner:
            return f"{command.name} has no {word}"
        if inner is not None:
            command = inner[word]
        elif word.startswith("--") and word not in {opt for param in command.params for opt in param.opts}:
            return f"{command.name} has no {word}"
    return ""


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_commands_exist(path: Path) -> None:
    document = path.read_text(encoding="utf-8")
    said = [found for part in code(document) for found in COMMAND.findall(part)]
    assert [wrong for words in said if (wrong := mistaken(words.split()))] == []


def test_the_readme_names_commands() -> None:
    found = {words.split()[0] for part in code(text_of("README.md")) for words in COMMAND.findall(part)}
    assert found == {"sign-in", "status", "notify", "contacts", "approvals", "mcp-config"}


@pytest.mark.parametrize("words", ["fly", "approvals burn ID", "notify --as greeter --urgent"])
def test_a_command_that_is_not_there_is_seen(words: str) -> None:
    assert mistaken(words.split())


def known_variables() -> tuple[set[str], set[str]]:
    """All variables, and those that may lie in a file."""
    names = set(dump(Settings.from_env({})))
    secret = {f.name.upper() for f in fields(Settings) if "Secret" in str(f.type)}
    return names, {name for name in names if name.removeprefix("BUTLERS_") in secret}


def test_the_settings_table_is_the_settings() -> None:
    rows = SETTING_ROW.findall(text_of("docs/operations.md"))
    names, secret = known_variables()
    assert {name for name, _, _ in rows} == names
    assert {name for name, _, file in rows if file} == secret
    plain = dump(Settings.from_env({}))
    given = dump(Settings.from_env({name: default for name, default, _ in rows if default}))
    assert given == plain
    assert {name for name, default, _ in rows if default} == {name for name, value in plain.items() if value}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_variables_are_known(path: Path) -> None:
    names, secret = known_variables()
    known = names | {f"{name}_FILE" for name in secret}
    assert set(VARIABLE.findall(path.read_text(encoding="utf-8"))) - known == set()


def test_ports_are_as_listed() -> None:
    rows = PORT_ROW.findall(text_of("docs/operations.md"))
    base = Settings.from_env({}).port_base
    assert all(int(port) == base + int(offset) for _, port, offset in rows)
    listed = {name: int(offset) for name, _, offset in rows}
    butler = listed.pop("the first butler of the fleet, by name")
    assert butler == FIRST_BUTLER
    assert listed == {**OFFSETS, "sandbox, SMTP": SANDBOX_SMTP, "sandbox, IMAP": SANDBOX_IMAP}


def test_each_everyday_thing_leads_to_a_file() -> None:
    rows = re.findall(r"^\| (?!what |---)(.+?) \| (.+?) \|$", text_of("docs/where.md"), re.MULTILINE)
    assert len({what for what, _ in rows}) == len(rows) >= 23
    assert [what for what, where in rows if not (files := SPAN.findall(where)) or not all(map(is_file, files))] == []


def is_file(name: str) -> bool:
    return (ROOT / name).is_file()


@cache
def defined_in(path: Path) -> frozenset[str]:
    """Functions, classes and methods of a module."""
    found = set[str]()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{part.name}" for part in node.body if hasattr(part, "name")}
    return frozenset(found)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_code_that_is_named_exists(path: Path) -> None:
    missing = []
    for span in code(path.read_text(encoding="utf-8")):
        file, colons, name = span.partition("::")
        if re.fullmatch(r"(?:butlers|switchboard|messenger|shared|tests)/[\w/]+(?:\.py)?", file) and (
            not (ROOT / file).exists() or (colons and name not in defined_in(ROOT / file))
        ):
            missing.append(span)
    assert missing == []


STAGES = (
    "shared/gate/accept.py",
    "shared/gate/resolve.py",
    "shared/gate/gather.py",
    "shared/gate/decide.py",
    "shared/gate/admit.py",
    "switchboard/route.py",
    "messenger/delivery/send.py::prepare",
    "messenger/delivery/mark.py",
    "messenger/delivery/send.py::finish",
    "messenger/delivery/settle.py",
)


def test_the_ten_stages_are_ten_places_of_their_names() -> None:
    found = stages()
    assert [(one.number, one.place) for one in found] == list(enumerate(STAGES, start=1))
    assert [one.place.rpartition("::")[2] if "::" in one.place else Path(one.place).stem for one in found] == [
        one.name for one in found
    ]


def test_the_table_of_stages_is_what_their_docstrings_say() -> None:
    assert f"\n{stage_table()}\n\n" in text_of("docs/architecture.md")


@pytest.mark.parametrize("source", ['"""Stage 3, gather: things."""', 'def f():\n    """Stage 3, gather: things."""'])
def test_a_stage_at_a_second_place_is_seen(tmp_path: Path, source: str) -> None:
    for name in ("shared/gate/gather.py", "messenger/twice.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(source, encoding="utf-8")
    assert [one.number for one in stages(tmp_path)] == [3, 3]


def outside(text: str) -> list[str]:
    """The pieces between commas that stand in no parentheses, up to the one that closes what is open."""
    depth, pieces = 0, [""]
    for mark in text:
        depth += (mark == "(") - (mark == ")")
        if depth < 0:
            break
        if mark == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += mark
    return pieces


@cache
def tables() -> dict[str, set[str]]:
    """Every table and view the migrations make, with its columns."""
    found = defaultdict[str, set[str]](set)
    for path in sorted((ROOT / "migrations/versions").glob("0*.py")):
        migrated(found, re.sub(r"--[^\n]*", "", path.read_text(encoding="utf-8")))
    return found


def migrated(found: dict[str, set[str]], sql: str) -> None:
    """What one migration makes of the tables and views there are."""
    for schema, old, new in re.findall(r"ALTER (?:TABLE|VIEW) (\w+)\.(\w+) RENAME TO (\w+)", sql):
        found[f"{schema}.{new}"] = found.pop(f"{schema}.{old}")
    for made in re.finditer(r"CREATE TABLE (\S+) \(", sql):
        found[made[1]] = {words[0] for piece in outside(sql[made.end() :]) if (words := piece.split())[0].islower()}
    for made in re.finditer(r"CREATE VIEW (\S+) .*?AS\s+SELECT (.*?)\sFROM ", sql, re.DOTALL):
        found[made[1]] = {piece.split()[-1] for piece in outside(made[2])}
    for altered in re.finditer(r"ALTER TABLE (\S+)\s(.*?);", sql, re.DOTALL):
        for column in re.findall(r"(?:ADD COLUMN|RENAME COLUMN \w+ TO) (\w+)", altered[2]):
            found[altered[1]].add(column)


def test_tables_and_columns_are_as_listed() -> None:
    listed = LISTED.findall(text_of("docs/operations.md"))
    wrong = {table: set(columns.split(", ")) - tables().get(table, set()) for table, columns in listed}
    assert {table: columns for table, columns in wrong.items() if columns} == {}
    assert len(listed) >= 15


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_tables_that_are_named_exist(path: Path) -> None:
    spans = [span for span in code(path.read_text(encoding="utf-8")) if "::" not in span]
    named = {table for span in spans for table in TABLE.findall(span)}
    assert named - set(tables()) - {"shared.me"} == set()


def test_each_table_has_the_writer_that_is_listed() -> None:
    real = defaultdict[str, set[str]](set)
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for table in WRITES.findall(path.read_text(encoding="utf-8")):
            real[table].add(name_of(path))
    rows = re.findall(r"^\| (`[a-z]+\.\w+`.*?) \| (.*?) \|$", text_of("docs/architecture.md"), re.MULTILINE)
    said = {table: set(SPAN.findall(writer)) for row, writer in rows for table in SPAN.findall(row)}
    written = {table: files for table, files in said.items() if files}
    assert written == real
    views = {"messenger.owner_at", "messenger.pauses", "messenger.rates"}
    views |= {"shared.asked_sessions", "shared.owner_decisions", "shared.notification_status", "shared.threads"}
    views |= {"shared.turns", "shared.session_chains"}
    assert set(said) == set(tables()) - views


def test_figures_are_those_of_the_recorded_run() -> None:
    document = text_of("docs/benchmarks.md")
    assert with_figures(document, read(json.loads(text_of("docs/benchmarks.json")))) == document


def test_decisions_are_numbered_and_whole() -> None:
    paths = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [path.name[:4] for path in paths] == [f"{n:04}" for n in range(1, len(paths) + 1)]
    for path in paths:
        document = path.read_text(encoding="utf-8")
        assert document.startswith(f"# {path.name[:4]} "), path
        assert re.findall(r"^\*\*(\w+)", document, re.MULTILINE) == ["Context", "Decision", "Consequences", "Measured"]
        assert len(document.split()) < 400, path


def test_the_glossary_has_each_word_once_and_a_sentence_for_it() -> None:
    entries = re.findall(r"^- \*\*([^*]+)\*\*: (.+?)(?=^- |\Z)", text_of("docs/glossary.md"), re.MULTILINE | re.DOTALL)
    words = [word for word, _ in entries]
    assert len(words) == len(set(words)) >= 38
    assert [word for word, said in entries if not said.strip().endswith(".")] == []


def test_the_pictures_are_there_and_not_heavy() -> None:
    pictures = [file.read_bytes() for file in sorted((ROOT / "docs").glob("*.png"))]
    assert len(pictures) >= 6
    assert all(one.startswith(b"\x89PNG") and len(one) < 200_000 for one in pictures)


def test_the_demo_butler_is_the_one_the_readme_speaks_of() -> None:
    assert [entry.name for entry in fleet.load(None)] == ["greeter"]


FAILURE_ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
HELD_BY = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_failure_is_made_to_happen_by_a_test_that_exists() -> None:
    rows = [row for row in FAILURE_ROW.findall(text_of("docs/failures.md")) if not row[2].startswith(("held", "-"))]
    assert len(rows) > 30
    for what, _, held in rows:
        named = HELD_BY.findall(held)
        assert named, what
        for file, name in named:
            assert (ROOT / file).exists(), (what, file)
            assert f"def {name}(" in text_of(file) if name else "def test_" in text_of(file), (what, name)
