"""The house rules, each a checker that names file and line, each checker tried on a planted offence."""

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import typer

from butlers.cli.app import build
from tests.rig.stages import stages

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("butlers", "switchboard", "messenger", "shared", "migrations")
OUR_HOUSE = ("butlers", "switchboard", "messenger", "shared")
PYTHON_FOLDERS = {*PACKAGES, "tests", "examples"}

Checker = Callable[[str, str], Iterator[str]]
Files = Mapping[str, str]
HouseChecker = Callable[[Files], Iterator[str]]
Function = ast.FunctionDef | ast.AsyncFunctionDef

# {file::function: why}. An entry that no longer excuses anything fails, so the tables cannot rot.
LONG_FUNCTIONS: dict[str, str] = {
    "shared/config/settings.py::Settings.from_env": "a line for each variable",
}
LONG_FILES: dict[str, str] = {
    "butlers/desk/window.py": "a program by itself, which imports nothing of ours",
}
MANY_PARAMETERS: dict[str, str] = {
    "butlers/cli/rules.py::add": "a rule's eight options, as options",
    "butlers/cli/go_live.py::go_live": "an answer each, as options",
    "shared/storage/sessions.py::enqueue": "what a session is begun with, by name",
    "butlers/cli/notify.py::notify": "the contract's eight parameters, as options",
}
BROAD_EXCEPTS: dict[str, str] = {
    "butlers/cli/startup.py::_send_outcome": "the outermost edge of a process: the one that waits for it raises it",
    "shared/loops.py::apart": "a row of others, or a mistake of ours, that must not stop what is done beside it",
    "butlers/console/middleware.py::Guard.__call__": "the outermost edge of a page: a person never meets a traceback",
    "shared/loops.py::supervise": "the outermost loop around every loop of a daemon",
    "butlers/setup/migrate.py::_upgrade_module": "code of others: whatever it raises degrades that module alone",
    "butlers/modules/loader.py::_load": "code of others, imported: whatever it raises degrades that module alone",
    "butlers/modules/loader.py::built": "code of others, called: whatever it raises degrades that module alone",
    "butlers/tools/gated.py::sentence": "code of others, called: a sentence that breaks refuses that call alone",
    "butlers/tools/gated.py::outcome": "code of others, called: whatever it raises is how that call ended",
    "butlers/modules/watch.py::Watch._begin": "code of others, called: whatever it raises degrades that module alone",
    "butlers/scheduler.py::_call": "code of others, called: whatever it raises ends that occurrence alone",
    "butlers/modules/watch.py::contained": "code of others, called: what would end the process is an error of it",
    "butlers/modules/watch.py::Watch._keep": "the outermost loop around every loop of a module",
}
ASSEMBLED_SQL: dict[str, str] = {
    "butlers/modules/manictime/queries.py::view_over": "columns of a fixed list, chosen by what a foreign file has",
    "shared/db/pool.py::Database.__init__": "role and setting are checked; a parameter would cost a round trip",
}

# Where SQL may stand: in storage, a file for each table; and in a few files of which one sentence is the whole idea.
SQL_FILES = (
    "*/storage/*.py",
    "butlers/console/queries/*.py",
    "butlers/daemon/discovery.py",
    "butlers/modules/manictime/forms.py",
    "butlers/modules/manictime/queries.py",
    "butlers/setup/chain.py",
    "butlers/setup/logins.py",
    "butlers/setup/migrate.py",
    "messenger/delivery/witness.py",
    "messenger/maintenance/purger.py",
    "migrations/module_rights.py",
    "migrations/versions/*.py",
    "shared/channels/realms.py",
    "shared/db/clock.py",
    "shared/db/pool.py",
    "shared/db/wake.py",
    "shared/gate/approval_request.py",
    "switchboard/sweeper.py",
)
MOST_IN_A_FOLDER = 12
WIDE_FOLDERS = {
    "butlers/cli": "a file for each word of the command line",
    "shared/storage": "a file for each table",
}
# What each file of a kind offers under one name is one thing, defined in as many places as there are files.
OFFERED_ALIKE: dict[str, tuple[str, str]] = {
    "MODULE": ("butlers/*/*.py", "what a butler.toml names by its path"),
    "add_to": ("butlers/cli/*.py", "a file's commands, added to the command line"),
    "app": ("butlers/cli/*.py", "a file's commands, as one group"),
    "index": ("butlers/console/pages/*.py", "the page that lists"),
    "one": ("*/storage/*.py", "one row by its id"),
    "run": ("messenger/*/*.py", "a loop of the Messenger"),
    "show": ("butlers/console/pages/*.py", "the page of one thing"),
    "submit": ("butlers/console/pages/*.py", "what a page's form sends"),
}
MOST_PLACES_OF_A_NAME = 2
LEAST_ALONE = 60
# Short files for one sibling that stay, since what they are named for is what a reader looks for.
SHORT_FILES: dict[str, str] = {
    "butlers/cli/*.py": "a file for each word of the command line",
    "messenger/cards/*.py": "a file for each kind of card",
    "switchboard/attachment.py": "whose wish for a file is let through, which is looked for by that name",
    "messenger/inbound/bounces.py": "what came back, which is looked for by that name",
}
FORBIDDEN_WORDS = ("manager", "service", "helper", "utils", "common", "dispatcher", "staffer")

# What a file may be named for beside the glossary's words, stages, tables and commands: words that need no telling.
PLAIN_WORDS = {
    "app",
    "base",
    "client",
    "error",
    "file",
    "folder",
    "hashing",
    "log",
    "message",
    "middleware",
    "option",
    "parser",
    "password",
    "port",
    "process",
    "serve",
    "server",
    "setting",
    "socket",
    "templating",
}
NAMED_OTHERWISE: dict[str, str] = {
    "messenger/channels/*.py": "the words of the protocol that a provider speaks",
    "messenger/sandbox/*.py": "the words of what it stands in for: HTTP, mail and the Bot API",
}

SQL = re.compile(
    r"\b(?:SELECT\s|INSERT\s+INTO\s|DELETE\s+FROM\s|UPDATE\s+[\w.]+\s+(?:AS\s+\w+\s+)?SET\s|LOCK\s+TABLE\s|SET\s+LOCAL\s"
    r"|(?:CREATE|ALTER|DROP)\s+(?:TABLE|ROLE|USER|DATABASE|SCHEMA|VIEW|INDEX|FUNCTION|TRIGGER|POLICY)\s"
    r"|GRANT\s+[\w, ]+\s+(?:ON|TO)\s|(?:UN)?LISTEN\s+\w|NOTIFY\s+\w)"
)
WRITES = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM)\s+[a-z]+\.\w+")
TICKET = re.compile(
    r"(?i)\b(?:issue|ticket|bug|pull request|pr)\s*#?\d+\b|(?<!PKCS )(?<![\w&\"'#/(=:])#\d{1,5}\b(?![\w-])"
)
MACHINE_PATH = re.compile(
    "|".join((r"(?<![\w.$}])/(?:root|work)/\w", r"/(?:home|Users)/[a-z]\w*/", r"(?<!\w)/t" + r"mp/\w"))
)
REGISTRY = re.compile(
    "|".join(("py" + r"pi\.org", "python" + r"hosted\.org", "registry" + r"\.npmjs", r"--(?:extra-)?index" + "-url"))
)


@cache
def tracked() -> tuple[str, ...]:
    """Every file of the project that git knows or would take, relative to its root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(sorted(name for name in set(listed.stdout.split("\0")) if name and (ROOT / name).is_file()))


def python_files(*folders: str) -> Iterator[tuple[str, str]]:
    for name in tracked():
        if name.endswith(".py") and name.partition("/")[0] in folders:
            yield name, (ROOT / name).read_text(encoding="utf-8")


def text_files() -> Iterator[tuple[str, str]]:
    for name in tracked():
        content = (ROOT / name).read_bytes()
        if b"\0" not in content[:4096] and not name.startswith("LICENSE"):
            yield name, content.decode("utf-8", errors="replace")


@cache
def parsed(source: str) -> ast.Module:
    """The tree of a file of the packages, which many rules look at."""
    return ast.parse(source)


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree: walking it takes longest."""
    return tuple(ast.walk(tree))


def functions(tree: ast.AST) -> Iterator[tuple[str, Function]]:
    """Every function with its qualified name."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, Function | ast.ClassDef):
                name = f"{prefix}.{child.name}" if prefix else child.name
                if isinstance(child, Function):
                    yield name, child
            yield from walk(child, name)

    return walk(tree, "")


def parameters(function: Function) -> list[ast.arg]:
    args = function.args
    named = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    return [arg for arg in named if arg.arg not in {"self", "cls"}]


def docstrings(tree: ast.AST) -> set[int]:
    """The ids of the constants that stand alone as a statement: they tell, they are not run."""
    return {id(node.value) for node in nodes(tree) if isinstance(node, ast.Expr)}


def file_too_long(name: str, source: str) -> Iterator[str]:
    """Statements count, and not lines, so that no line is squeezed; an SQL text is one, a docstring or import none."""
    limit = 340 if name.startswith("tests/") else 175
    if source.count("\n") < limit or name in LONG_FILES:
        return  # ruff lets no line hold two statements (E701 to E703)
    all_ = [node for node in nodes(parsed(source)) if isinstance(node, ast.stmt)]
    told = [node for node in all_ if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    if (count := len(all_) - len(told) - sum(isinstance(node, ast.Import | ast.ImportFrom) for node in all_)) > limit:
        yield f"{name}:1: {count} statements, {limit} are allowed"


def folder_too_wide(folder: str, names: Sequence[str]) -> Iterator[str]:
    """A folder is read at one look; where each file is a table or a word of the command line, its name is known."""
    if len(names) > MOST_IN_A_FOLDER and folder not in WIDE_FOLDERS:
        yield f"{folder}:1: {len(names)} files, {MOST_IN_A_FOLDER} are allowed"


def function_too_long(name: str, source: str) -> Iterator[str]:
    for function, node in functions(parsed(source)):
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > 40 and f"{name}::{function}" not in LONG_FUNCTIONS:
            yield f"{name}:{node.lineno}: {function} has {length} lines, 40 are allowed"


def too_many_parameters(name: str, source: str) -> Iterator[str]:
    for function, node in functions(parsed(source)):
        if (count := len(parameters(node))) > 6 and f"{name}::{function}" not in MANY_PARAMETERS:
            yield f"{name}:{node.lineno}: {function} takes {count} parameters, 6 are allowed"


def reads_environment(name: str, source: str) -> Iterator[str]:
    words = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    if name == "shared/config/settings.py":
        return
    for node in nodes(parsed(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=word) if word in words:
                yield f"{name}:{node.lineno}: only shared/config/settings.py reads the environment"
            case ast.ImportFrom(module="os", names=names) if words & {alias.name for alias in names}:
                yield f"{name}:{node.lineno}: only shared/config/settings.py reads the environment"


def mocks(name: str, source: str) -> Iterator[str]:
    if "mock" not in source and "monkeypatch" not in source:
        return
    for node in nodes(parsed(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names]
            modules += (
                [f"{node.module}.{m}" for m in modules] + [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            if any(m in {"unittest.mock", "mock", "pytest_mock"} or m.startswith("unittest.mock.") for m in modules):
                yield f"{name}:{node.lineno}: no mock library: a fake is a local server or a ten-line recorder"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in {"monkeypatch.setattr", "monkeypatch.setitem"}:
            yield f"{name}:{node.lineno}: nothing is patched: pass it as an argument"


def broad_except(name: str, source: str) -> Iterator[str]:
    tree = parsed(source)
    for node in nodes(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        if isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None:
            continue  # it tidies up and passes the error on
        caught = "bare" if node.type is None else ast.unparse(node.type)
        if re.search(r"\b(?:bare|Exception|BaseException)\b", caught):
            where = {id(part): function for function, inside in functions(tree) for part in ast.walk(inside)}.get(
                id(node), "<module>"
            )
            if f"{name}::{where}" not in BROAD_EXCEPTS:
                yield f"{name}:{node.lineno}: {where} catches everything ({caught})"


def ticket_or_machine(name: str, source: str) -> Iterator[str]:
    if not any(forbidden.search(source) for forbidden in (MACHINE_PATH, TICKET, REGISTRY)):
        return
    for number, line in enumerate(source.splitlines(), 1):
        if MACHINE_PATH.search(line):
            yield f"{name}:{number}: a path of one machine"
        if name.endswith((".py", ".md")) and TICKET.search(line):
            yield f"{name}:{number}: a ticket number; say the reason itself"
        if REGISTRY.search(line):
            yield f"{name}:{number}: names a package registry"


def lock_names_a_source(name: str, source: str) -> Iterator[str]:
    if not re.fullmatch(r"(?:requirements[\w-]*|tests/.+)\.lock", name):
        return
    for number, line in enumerate(source.splitlines(), 1):
        if not re.fullmatch(r"(?:[a-z0-9._-]+==\S+(?: ; .+)? \\|    --hash=sha256:[0-9a-f]{64}(?: \\)?)", line):
            yield f"{name}:{number}: neither a pinned requirement nor a hash"


def sql_strings(tree: ast.AST) -> Iterator[ast.Constant | ast.JoinedStr]:
    told = docstrings(tree)
    inside = {id(part) for node in nodes(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told | inside:
            text = node.value
        else:
            continue
        if SQL.search(text):
            yield node


def sql_elsewhere(name: str, source: str) -> Iterator[str]:
    if any(fnmatch(name, pattern) for pattern in SQL_FILES):
        return
    for node in sql_strings(parsed(source)):
        yield f"{name}:{node.lineno}: SQL stands only in the files listed for it"


def sql_far_from_its_function(name: str, source: str) -> Iterator[str]:
    """Find an SQL text below which another function comes before the first that runs it."""
    if not any(fnmatch(name, pattern) for pattern in SQL_FILES[:2]):
        return
    tree = parsed(source)
    sql = {id(node) for node in sql_strings(tree)}
    used = [(node, {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}) for node in tree.body]
    for node, _ in used:
        if isinstance(node, ast.Assign | ast.AnnAssign) and any(id(one) in sql for one in ast.walk(node)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            below = [names for one, names in used if isinstance(one, Function) and one.lineno > node.lineno]
            runs = [isinstance(target, ast.Name) and target.id in names for names in below]
            if any(runs) and not runs[0]:
                yield f"{name}:{node.lineno}: an SQL text stands directly above the function that runs it"


def sql_put_together(name: str, source: str) -> Iterator[str]:
    if name.startswith("migrations/"):
        return
    tree = parsed(source)
    texts = {id(node): node for node in sql_strings(tree)}
    found: list[ast.expr] = [node for node in texts.values() if isinstance(node, ast.JoinedStr)]
    found += [node for node in nodes(tree) if isinstance(node, ast.Attribute) and id(node.value) in texts]
    inside = {id(part): function for function, node in functions(tree) for part in ast.walk(node)} if found else {}
    for node in found:
        where = inside.get(id(node))  # outside a function it is put together once, of our own constants
        if where is not None and f"{name}::{where}" not in ASSEMBLED_SQL:
            yield f"{name}:{node.lineno}: SQL is static text with $n parameters"


def any_in_signature(name: str, source: str) -> Iterator[str]:
    for function, node in functions(parsed(source)):
        if any(part.startswith("_") and not part.startswith("__") for part in function.split(".")):
            continue
        annotations = [arg.annotation for arg in parameters(node)] + [node.returns]
        if any("dict[str, Any]" in ast.unparse(a) for a in annotations if a is not None):
            yield f"{name}:{node.lineno}: dict[str, Any] in the signature of {function}"


def empty_words(name: str, source: str) -> Iterator[str]:
    stem = Path(name).stem
    named = [(1, stem)] + [
        (node.lineno, node.name) for node in nodes(parsed(source)) if isinstance(node, Function | ast.ClassDef)
    ]
    for line, word in named:
        parts = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).lower())
        if bad := set(parts) & set(FORBIDDEN_WORDS):
            yield f"{name}:{line}: {word}: {bad.pop()} says nothing"


def strange_folder(name: str, _source: str) -> Iterator[str]:
    top, slash, _ = name.partition("/")
    if not slash or top not in PYTHON_FOLDERS:
        yield f"{name}:1: Python lies in {', '.join(sorted(PYTHON_FOLDERS))} only"


def module_of(name: str) -> str:
    return name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def uses(files: Files) -> Iterator[tuple[str, str, str]]:
    """Who of these files imports which other, and what of it; nothing of it where it is imported whole."""
    names = {module_of(name): name for name in files}
    for user, source in files.items():
        tree, whole = parsed(source), dict[str, str]()
        froms = [node for node in nodes(tree) if isinstance(node, ast.ImportFrom)]
        for module, alias in ((node.module or "", alias) for node in froms for alias in node.names):
            if found := names.get(f"{module}.{alias.name}"):
                whole[alias.asname or alias.name] = found
                yield user, found, ""
            elif found := names.get(module):
                yield user, found, alias.name
        for node in nodes(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in whole:
                yield user, whole[node.value.id], node.attr


def defined(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What others may import, and its line."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name, node.lineno


def name_of_many_things(files: Files) -> Iterator[str]:
    """Yield the third place, and more, that defines a name which other modules use of it."""
    used, places = {(file, name) for _, file, name in uses(files)}, defaultdict[str, set[str]](set)
    for file, source in files.items():
        for name, line in defined(parsed(source)):
            if name.startswith("_") or (file, name) not in used:
                continue
            pattern, _ = OFFERED_ALIKE.get(name, ("", ""))
            places[name].add(pattern if fnmatch(file, pattern) else file)
            if len(places[name]) > MOST_PLACES_OF_A_NAME:
                yield f"{file}:{line}: {name} is something else in {', '.join(sorted(places[name] - {file}))}"


def half_an_idea(files: Files) -> Iterator[str]:
    """Yield each module that one sibling alone imports, and that has no table, is not pure, and is short."""
    users = defaultdict[str, set[str]](set)
    for user, file, _ in uses(files):
        users[file].add(user)
    for file, (user, *others) in users.items():
        length, told = len(files[file].splitlines()), ast.get_docstring(parsed(files[file])) or ""
        alone = not others and Path(user).parent == Path(file).parent and not told.endswith("Pure.")
        if alone and length < LEAST_ALONE and not WRITES.search(files[file]) and not excused(file):
            yield f"{file}:1: {length} lines that {user} alone imports are part of it"


def excused(file: str) -> bool:
    return any(fnmatch(file, pattern) for pattern in SHORT_FILES)


@cache
def words() -> frozenset[str]:
    """What a file may be named for, as file names spell it."""
    glossary = re.findall(r"^- \*\*([^*]+)\*\*", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    told = {word.lower() for entry in glossary for word in entry.split(", ")}
    spelt = {re.sub("[ -]", by, word) for word in told for by in ("", "_")}
    commands = {word.replace("-", "_") for word in typer.main.get_command(build()).commands}  # type: ignore[attr-defined]
    made = "".join(source for _, source in python_files("migrations"))
    tables = set(re.findall(r"CREATE (?:TABLE|VIEW) \w+\.(\w+)", made))
    return frozenset(spelt | commands | tables | {stage.name for stage in stages()} | PLAIN_WORDS)


def is_known(stem: str) -> bool:
    """Whether this is a word, in one or several, or some of them one after the other."""
    forms = {stem, f"{stem}s", stem.removesuffix("s"), stem.removesuffix("es"), re.sub("ies$", "y", stem)}
    first = (n for n, letter in enumerate(stem) if letter == "_")
    return bool(forms & words()) or any(is_known(stem[:n]) and is_known(stem[n + 1 :]) for n in first)


def named_for_nothing(name: str, _source: str) -> Iterator[str]:
    stem = Path(name).stem
    if name.startswith("migrations/") or stem.startswith("__") or any(fnmatch(name, one) for one in NAMED_OTHERWISE):
        return
    if not is_known(stem):
        yield f"{name}:1: {stem} is no word of docs/glossary.md, no stage, table or command"


OF_PACKAGES: tuple[Checker, ...] = (
    function_too_long,
    too_many_parameters,
    reads_environment,
    broad_except,
    sql_elsewhere,
    sql_far_from_its_function,
    sql_put_together,
    any_in_signature,
    empty_words,
    named_for_nothing,
)
OF_ALL_PYTHON: tuple[Checker, ...] = (file_too_long, mocks, strange_folder)
OF_ALL_TEXT: tuple[Checker, ...] = (ticket_or_machine, lock_names_a_source)
OF_THE_HOUSE: tuple[HouseChecker, ...] = (name_of_many_things, half_an_idea)


def name_of(checker: object) -> str:
    return getattr(checker, "__name__", "")


def complain(found: Iterator[str]) -> None:
    if said := "\n".join(found):
        pytest.fail(said, pytrace=False)


@pytest.mark.parametrize("checker", OF_PACKAGES, ids=name_of)
def test_packages_keep_the_rule(checker: Checker) -> None:
    complain(said for name, source in python_files(*PACKAGES) for said in checker(name, source))


@pytest.mark.parametrize("checker", OF_ALL_PYTHON, ids=name_of)
def test_all_python_keeps_the_rule(checker: Checker) -> None:
    files = [(name, (ROOT / name).read_text(encoding="utf-8")) for name in tracked() if name.endswith(".py")]
    complain(said for name, source in files for said in checker(name, source))


@pytest.mark.parametrize("checker", OF_ALL_TEXT, ids=name_of)
def test_all_text_keeps_the_rule(checker: Checker) -> None:
    complain(said for name, source in text_files() for said in checker(name, source))


@pytest.mark.parametrize("checker", OF_THE_HOUSE, ids=name_of)
def test_the_house_keeps_the_rule(checker: HouseChecker) -> None:
    complain(checker(dict(python_files(*OUR_HOUSE))))


def test_no_folder_is_too_wide() -> None:
    folders: dict[str, list[str]] = {}
    for name, _ in python_files(*OUR_HOUSE):
        if not name.endswith("__.py"):
            folders.setdefault(name.rpartition("/")[0], []).append(name)
    complain(said for folder, names in folders.items() for said in folder_too_wide(folder, names))
    assert all(len(folders[folder]) > MOST_IN_A_FOLDER for folder in WIDE_FOLDERS)
    assert list(folder_too_wide("shared/gate", ["x.py"] * (MOST_IN_A_FOLDER + 1)))


def test_top_level_names_are_ours() -> None:
    owners = packages_distributions()
    assert {name: owners.get(name, ["butlers"]) for name in PACKAGES} == {name: ["butlers"] for name in PACKAGES}


def test_both_locks_agree() -> None:
    runtime, developing = (
        dict(re.findall(r"^([a-z0-9._-]+)==([^ ;\\]+)", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.lock", "requirements-dev.lock")
    )
    assert {name: developing.get(name) for name in runtime} == runtime


def test_every_exception_still_excuses_something() -> None:
    tables: tuple[tuple[dict[str, str], Checker], ...] = (
        (LONG_FUNCTIONS, function_too_long),
        (LONG_FILES, file_too_long),
        (MANY_PARAMETERS, too_many_parameters),
        (BROAD_EXCEPTS, broad_except),
        (ASSEMBLED_SQL, sql_put_together),
    )
    house = dict(python_files(*OUR_HOUSE))
    for table, found_in in (
        (SHORT_FILES, half_an_idea),
        (NAMED_OTHERWISE, lambda house: (said for name in house for said in named_for_nothing(name, ""))),
    ):
        for entry in list(table):
            reason = table.pop(entry)
            found = [said for said in found_in(house) if fnmatch(said.partition(":")[0], entry)]
            table[entry] = reason
            assert found, f"{entry} needs no exception any more"
            assert reason
    for table, checker in tables:
        for entry in list(table):
            name = entry.partition("::")[0]
            source = (ROOT / name).read_text(encoding="utf-8")
            reason = table.pop(entry)
            found = list(checker(name, source))
            table[entry] = reason
            assert found, f"{entry} needs no exception from {name_of(checker)} any more"
            assert reason


@pytest.mark.parametrize("pattern", SQL_FILES)
def test_every_place_of_sql_still_has_some(pattern: str) -> None:
    assert any(fnmatch(name, pattern) and any(sql_strings(parsed(source))) for name, source in python_files(*PACKAGES))


PLANTED: list[tuple[Checker, str, str]] = [
    (file_too_long, "shared/x.py", "x = 1\n" * 176),
    (file_too_long, "tests/x.py", "x = 1\n" * 341),
    (function_too_long, "shared/x.py", "class A:\n def f():\n" + "  x = 1\n" * 40),
    (too_many_parameters, "shared/x.py", "def f(a, b, c, d, /, e, *, f, g): ..."),
    (reads_environment, "shared/x.py", "import os\nx = os.environ['HOME']"),
    (reads_environment, "shared/x.py", "from os import getenv"),
    (mocks, "tests/x.py", "from unittest import mock"),
    (mocks, "tests/x.py", "import unittest.mock"),
    (mocks, "tests/x.py", "def f(monkeypatch):\n monkeypatch.setattr(a, 'b', 1)"),
    (broad_except, "shared/x.py", "def f():\n try:\n  x()\n except Exception:\n  y()"),
    (broad_except, "shared/x.py", "try:\n x()\nexcept (ValueError, BaseException) as e:\n y()"),
    (broad_except, "shared/x.py", "try:\n x()\nexcept:\n y()"),
    (ticket_or_machine, "README.md", "See iss" + "ue 12."),
    (ticket_or_machine, "shared/x.py", "x = 1  # see #" + "123"),
    (ticket_or_machine, "docs/x.yml", "path: /ro" + "ot/thing"),
    (ticket_or_machine, "docs/x.yml", "path: /ho" + "me/anna/thing"),
    (ticket_or_machine, "Makefile", "pip install --index" + "-url x"),
    (lock_names_a_source, "requirements.lock", "--find-links wheels"),
    (lock_names_a_source, "requirements-dev.lock", "thing @ https://example.test/thing.whl"),
    (sql_elsewhere, "butlers/daemon/app.py", "x = 'SELECT 1'"),
    (sql_elsewhere, "butlers/daemon/app.py", "x = f'UPDATE {t} SET a = 1'"),
    (sql_far_from_its_function, "shared/storage/x.py", "A = 'SELECT 1'\ndef f(): ...\ndef g(): run(A)"),
    (sql_put_together, "shared/db/pool.py", "def f(table): return f'SELECT * FROM {table}'"),
    (sql_put_together, "shared/db/pool.py", "def f(x): return 'SELECT {} '.format(x)"),
    (any_in_signature, "shared/x.py", "class A:\n def f(self, a: list[dict[str, Any]]): ..."),
    (any_in_signature, "shared/x.py", "async def f() -> dict[str, Any]: ..."),
    (empty_words, "shared/x.py", "class TaskManager: ..."),
    (empty_words, "shared/utils.py", ""),
    (strange_folder, "lib/x.py", ""),
    (named_for_nothing, "shared/leases_and_things.py", ""),
]


@pytest.mark.parametrize(("checker", "name", "source"), PLANTED, ids=lambda value: name_of(value) or None)
def test_a_planted_offence_is_found(checker: Checker, name: str, source: str) -> None:
    [said] = list(checker(name, source))
    assert re.match(rf"{re.escape(name)}:\d+: ", said)


FINDS = "def find(): ...\n"
USES = "from shared import a, b, c\na.find(), b.find(), c.find()"
PLANTED_IN_A_HOUSE: list[tuple[HouseChecker, Files]] = [
    (name_of_many_things, {**{f"shared/{one}.py": FINDS for one in "abc"}, "butlers/x.py": USES}),
    (half_an_idea, {"shared/a.py": FINDS, "shared/x.py": "from shared.a import find"}),
]


@pytest.mark.parametrize(("checker", "files"), PLANTED_IN_A_HOUSE, ids=lambda value: name_of(value) or None)
def test_a_planted_offence_is_found_in_a_house(checker: HouseChecker, files: Files) -> None:
    [said] = list(checker(files))
    assert re.match(r"[\w/]+\.py:\d+: ", said)
    [name, *_] = said.split(":")
    assert list(checker({file: source for file, source in files.items() if file != name})) == []


@pytest.mark.parametrize(
    "source", ['"""Find. Pure."""\n' + FINDS, FINDS + "ADD = 'INSERT INTO shared.a'", FINDS + "\n" * 60]
)
def test_a_short_file_with_an_idea_of_its_own_is_left_alone(source: str) -> None:
    assert list(half_an_idea({"shared/a.py": source, "shared/x.py": "from shared import a\na.find()"})) == []


def test_what_is_offered_alike_is_offered_by_several() -> None:
    found = defaultdict[str, list[str]](list)
    for file, source in python_files(*OUR_HOUSE):
        for name, _ in defined(parsed(source)):
            if fnmatch(file, OFFERED_ALIKE.get(name, ("", ""))[0]):
                found[name].append(file)
    assert {name for name, files in found.items() if len(files) > MOST_PLACES_OF_A_NAME} == set(OFFERED_ALIKE)


CLEAN = '''
"""SELECT things FROM the world: a docstring tells."""
import os
def f(self, a: int, b: int) -> dict[str, object]:
    try:
        return {"x": os.getpid()}
    except (ValueError, OSError):
        return {"colour": "&#10; #fff"}
    except BaseException:
        self.close()
        raise
'''


@pytest.mark.parametrize("checker", OF_PACKAGES + OF_ALL_PYTHON + OF_ALL_TEXT, ids=name_of)
def test_innocent_code_is_left_alone(checker: Checker) -> None:
    assert list(checker("shared/model.py", CLEAN)) == []
