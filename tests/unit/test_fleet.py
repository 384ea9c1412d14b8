"""The fleet's folders: read strictly, and every refusal names the file and what to do."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from butlers.fleet import DEMO, RESERVED, load, read
from butlers.setup.scaffold import scaffold
from shared.errors import Misconfigured

ROOT = Path(__file__).resolve().parents[2]
HEAD = 'name = "h"\ndescription = "x"\n'
SCHEDULE = '[[schedules]]\nname = "a"\ncron = "0 9 * * *"\ntool = "notify"\n'
PROMPT = '[[schedules]]\nname = "a"\ncron = "0 9 * * *"\nprompt = "Well?"\n'


def butler(where: Path, toml: str | bytes = 'name = "health"\ndescription = "Looks after you."\n') -> Path:
    """A butler's folder with this butler.toml."""
    where.mkdir(parents=True)
    (where / "butler.toml").write_bytes(toml.encode() if isinstance(toml, str) else toml)
    (where / "PERSONA.md").write_text("# Health\n")
    return where


def test_a_butler_is_a_name_a_description_and_a_persona(tmp_path: Path) -> None:
    entry = read(butler(tmp_path / "any_folder"))
    assert (entry.name, entry.description, entry.persona) == ("health", "Looks after you.", "# Health\n")


def test_every_folder_with_a_butler_toml_is_a_butler_and_nothing_else_is(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        butler(tmp_path / name, f'name = "{name}"\ndescription = "x"\n')
    (tmp_path / "notes").mkdir()
    (tmp_path / "butler.toml").write_text("no butler")
    assert [entry.name for entry in load(tmp_path)] == ["a", "b", "c"]


def test_a_butler_that_would_be_left_out_and_a_folder_that_is_no_fleet_are_named(tmp_path: Path) -> None:
    butler(tmp_path / "fleet" / "a")
    (butler(tmp_path / "fleet" / "b", HEAD) / "butler.toml").rename(tmp_path / "fleet" / "b" / "Butler.toml")
    with pytest.raises(Misconfigured, match=r"b/PERSONA\.md describes a butler that has no butler\.toml\."):
        load(tmp_path / "fleet")
    with pytest.raises(Misconfigured, match=f"is the folder of one butler.* --fleet {tmp_path / 'fleet'}"):
        load(tmp_path / "fleet" / "a")


def test_without_a_folder_it_is_the_demo_fleet() -> None:
    assert [entry.name for entry in load(None)] == ["greeter"]
    assert load(None) == load(DEMO)


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        pytest.param("name = ", "is not valid TOML", id="no TOML"),
        pytest.param(b"\xff\xfe", "is not UTF-8 text", id="no text"),
        pytest.param("", "has no valid name", id="empty"),
        pytest.param('description = "x"', "has no valid name", id="no name"),
        pytest.param('name = 7\ndescription = "x"', "has no valid name", id="a number"),
        pytest.param('name = "Health"\ndescription = "x"', "has no valid name", id="a capital letter"),
        pytest.param('name = "1st"\ndescription = "x"', "has no valid name", id="a digit first"),
        pytest.param('name = "he-alth"\ndescription = "x"', "has no valid name", id="a dash"),
        pytest.param('name = "health\\n"\ndescription = "x"', "has no valid name", id="a line end"),
        pytest.param(f'name = "{"h" * 32}"\ndescription = "x"', "has no valid name", id="too long"),
        pytest.param('name = "health"', "has no description", id="no description"),
        pytest.param('name = "health"\ndescription = " "', "has no description", id="a blank one"),
        pytest.param('name = "health"\ndescription = ["x"]', "has no description", id="a list"),
        pytest.param('name = "health"\nmodulse = []', "unknown key `modulse`. Did you mean `modules`?", id="near"),
        pytest.param(HEAD + "budgets = 1", "unknown key `budgets`. Choose from: name,", id="not near enough"),
        pytest.param(
            HEAD + "[manictime]\ndata = 'x'", "unknown table [manictime]. If it is a module's, add", id="table"
        ),
        pytest.param(HEAD + "[runtme]\nkind = 'x'", "unknown table [runtme]. Did you mean `runtime`?", id="near table"),
        pytest.param('name = "health"\nzzz = 1', "unknown key `zzz`. Choose from: name,", id="unknown"),
        pytest.param('[butler]\nname = "health"', "unknown table [butler]", id="nested"),
        pytest.param('name = "health"\nmodules = "state"', "`modules` is no list of module names", id="one module"),
        pytest.param('name = "health"\nmodules = ["../x"]', "`modules` is no list of module names", id="a path"),
        pytest.param('name = "h"\ndescription = "x"\ndefault = "yes"', "neither true nor false", id="no yes or no"),
        pytest.param('name = "h"\nmodules = ["a.b", "b"]', "two modules are called `b`", id="two with one name"),
        pytest.param('name = "h"\nmodules = ["state"]\nstate = 1', "`state` is not a table", id="no table"),
        pytest.param('name = "h"\ndescription = "x"\ncalls = "b"', "`calls` is no list of butlers", id="one called"),
        pytest.param(f"{HEAD}[schedules]\na = 1", "`schedules` is no list of tables", id="one schedule"),
        pytest.param(
            f"{HEAD}{SCHEDULE}{SCHEDULE}",
            "[[schedules]] a: there are two of that name",
            id="twice",
        ),
        pytest.param(f"{HEAD}{PROMPT}", "[[schedules]] a: `prompt` needs a runtime", id="no runtime"),
        pytest.param(
            f"{HEAD}{SCHEDULE}crom = 1",
            "[[schedules]] a: A schedule has no key `crom`",
            id="a key",
        ),
        pytest.param('name = "h"\nmodules = ["a.state"]\n[stat]', "[stat]. Did you mean `state`?", id="other table"),
    ],
)
def test_a_broken_butler_is_told_by_its_file(tmp_path: Path, toml: str | bytes, said: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        read(butler(tmp_path / "b", toml))
    assert said in str(refused.value)
    assert str(tmp_path / "b" / "butler.toml") in refused.value.message
    assert refused.value.remedy


def test_a_butler_has_modules_each_with_its_table(tmp_path: Path) -> None:
    toml = 'name = "h"\ndescription = "x"\nmodules = ["state", "garden.beds"]\n[beds]\nrows = 3\n'
    state, beds = read(butler(tmp_path / "b", toml)).modules
    assert (state.path, state.name, state.table) == ("state", "state", {})
    assert (beds.path, beds.name, beds.table) == ("garden.beds", "beds", {"rows": 3})


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_the_name_of_a_part_of_the_house_is_taken(tmp_path: Path, name: str) -> None:
    with pytest.raises(Misconfigured, match="is a reserved name"):
        read(butler(tmp_path / "b", f'name = "{name}"\ndescription = "x"'))
    with pytest.raises(Misconfigured, match="is a reserved name"):
        scaffold(tmp_path, name)


def test_the_longest_name_fits(tmp_path: Path) -> None:
    name = "h" * 31
    assert read(butler(tmp_path / "b", f'name = "{name}"\ndescription = "x"')).name == name


def test_a_butler_needs_a_persona(tmp_path: Path) -> None:
    where = butler(tmp_path / "b")
    (where / "PERSONA.md").unlink()
    with pytest.raises(Misconfigured, match=r"PERSONA\.md is missing"):
        read(where)


def test_two_butlers_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        butler(tmp_path / folder)
    with pytest.raises(Misconfigured, match="Two butlers in the fleet are called `health`"):
        load(tmp_path)


def test_no_folder_an_empty_one_and_a_file_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name, said in (("nowhere", "does not exist"), ("file", "is not a folder"), ("empty", "contains no butler")):
        with pytest.raises(Misconfigured, match=said) as refused:
            load(tmp_path / name)
        assert "butlers init NAME" in refused.value.remedy


def test_a_scaffold_is_a_butler_at_once_and_never_overwrites(tmp_path: Path) -> None:
    made = scaffold(tmp_path / "fleet", "calendar")
    assert [entry.name for entry in load(tmp_path / "fleet")] == ["calendar"]
    (made / "PERSONA.md").write_text("mine")
    with pytest.raises(Misconfigured, match="already exists"):
        scaffold(tmp_path / "fleet", "calendar")
    assert (made / "PERSONA.md").read_text() == "mine"


@pytest.mark.parametrize("name", ["", "../up", "a/b", "Health", "a b", "a\n"])
def test_no_name_leads_out_of_the_fleets_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(Misconfigured, match="is not a valid name for a butler"):
        scaffold(tmp_path / "fleet", name)
    assert not (tmp_path / "fleet").exists()


def test_at_most_one_butler_is_the_default(tmp_path: Path) -> None:
    for name in ("a", "b"):
        scaffold(tmp_path, name)
    toml = tmp_path / "b" / "butler.toml"
    toml.write_text(f"{toml.read_text(encoding='utf-8')}default = true\n", encoding="utf-8")
    assert [entry.is_default for entry in load(tmp_path)] == [False, True]
    (tmp_path / "a" / "butler.toml").write_text('name = "a"\ndescription = "x"\ndefault = true\n', encoding="utf-8")
    with pytest.raises(Misconfigured, match="2 butlers in the fleet are the default: a, b"):
        load(tmp_path)


def test_at_most_one_butler_is_the_classifier_and_it_has_a_runtime(tmp_path: Path) -> None:
    for name in ("a", "b"):
        scaffold(tmp_path, name)
    thinks = 'classifier = true\n[runtime]\nkind = "script"\nsteps = [{ say = "a" }]\n'
    toml = tmp_path / "b" / "butler.toml"
    toml.write_text(f'name = "b"\ndescription = "x"\n{thinks}', encoding="utf-8")
    assert [entry.is_classifier for entry in load(tmp_path)] == [False, True]
    toml.write_text('name = "b"\ndescription = "x"\nclassifier = true\n', encoding="utf-8")
    with pytest.raises(Misconfigured, match="`classifier` needs a runtime"):
        load(tmp_path)
    for name in ("a", "b"):
        text = f'name = "{name}"\ndescription = "x"\n{thinks}'
        (tmp_path / name / "butler.toml").write_text(text, encoding="utf-8")
    with pytest.raises(Misconfigured, match="2 butlers in the fleet are the classifier: a, b"):
        load(tmp_path)


NOBODY = 65534
PARTS = (
    *(".", "health", "health/butler.toml", ".hidden"),
    *("valve", "valve/__init__.py", "valve/__pycache__", "helper.py", "linked/helper.py"),
)


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A fleet with a butler, a hidden one, modules in a folder, a file and behind a link, and what is no butler's."""
    where = tmp_path / "fleet"
    butler(where / "health")
    butler(where / ".hidden", HEAD)
    (where / "valve" / "__pycache__").mkdir(parents=True)
    (where / "valve" / "__init__.py").touch()
    (where / "helper.py").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "helper.py").touch()
    (where / "linked").symlink_to(tmp_path / "elsewhere")
    (where / "gone").symlink_to("nowhere")
    (where / ".butlers").mkdir()
    (where / ".butlers").chmod(0o777)
    return where


@pytest.mark.parametrize("part", PARTS)
def test_a_fleet_in_which_everybody_may_write_is_refused_and_a_group_may(several: Path, part: str) -> None:
    open_to_all = several / part
    open_to_all.chmod(0o775)
    assert len(load(several)) == 2
    open_to_all.chmod(0o777)
    called, flag = (f"fleet {several}", "") if part == "." else (f"fleet's {part}", "-R ")
    refused = f"Every user can write to the {called}. If you trust what lies in it, run `chmod {flag}go-w {several}`."
    with pytest.raises(Misconfigured, match=f"^{re.escape(refused)}$"):
        load(several)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes folders for others")
@pytest.mark.parametrize("part", PARTS)
def test_what_is_another_users_in_a_fleet_is_refused_unless_the_home_is_that_users(several: Path, part: str) -> None:
    os.chown(several / part, NOBODY, NOBODY)
    with pytest.raises(Misconfigured, match=r"^The fleet.* belongs to another user, "):
        load(several, several.parent)
    os.chown(several.parent, NOBODY, NOBODY)
    assert len(load(several, several.parent)) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_fleet_that_is_mounted_to_be_read_only_may_be_whose_it_is(several: Path) -> None:
    """As in a container, where the files are a user's of the host."""
    for path in (several, *several.rglob("*")):
        os.chown(path, 1000, 1000, follow_symlinks=False)
    say = "import sys; from pathlib import Path; from butlers import fleet; print(len(fleet.load(Path(sys.argv[1]))))"
    mounts = '(mount --bind "$1" "$1" && mount -o remount,ro,bind "$1") || exit 77; exec "$0" -c "$2" "$1"'
    argv = ["unshare", "--mount", "sh", "-c", mounts, sys.executable, str(several), say]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip("only root may mount")
    assert done.stdout == "2\n", done.stderr
