"""Bad input by command line, environment or fleet folder: a clear sentence, exit code 1, nothing changed."""

import asyncio
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from butlers.fleet import KEYS
from shared.db.dsn import place_of
from tests.integration.cli.bad_input_runner import DROPPED, demand_refused, execute, run
from tests.rig.bench import Bench, House
from tests.rig.tls import self_signed

# They start whole programs: `make test` runs them where what they try has changed, `make verify` always.
pytestmark = pytest.mark.slow

GOOD = 'name = "a"\ndescription = "A butler."\n'
NO_ONE = "00000000-0000-4000-8000-000000000000"
EMAIL, TELEGRAM = "Give one e-mail address (name@example.org).", "Give one numeric chat id, or one @username."
START_UP = "Start everything with `butlers up`, or set DATABASE_URL."
KNOWN = "Choose from: switchboard, messenger, greeter, health."
NO_NAME = "A name has a letter and no @; this one could be taken for an address. Give a name."
A_LENGTH = "Write a number and s, m, h, d or w, such as 72h."
WITH_UNIT = "Write a number and s, m, h, d or w, such as 30d."


@pytest.fixture(scope="module")
def house(bench: Bench) -> Iterator[House]:
    """One house for all: nothing here may change it."""
    made = asyncio.run(bench.house())
    (made.folder / "afile").write_text("a file where a folder should be")
    (made.folder / "empty").mkdir()
    yield made
    made.close()


@pytest.fixture(scope="module")
def embedded(house: House) -> Path:
    """Its home, gone back to the embedded database as a person is told to."""
    home = house.folder / "embedded"
    shutil.copytree(house.home, home)
    kept = (home / "settings.json").read_text().splitlines(keepends=True)
    (home / "settings.json").write_text("".join(line for line in kept if not line.strip().startswith('"DATABASE"')))
    return home


def butler(fleet: Path, toml: str | bytes, persona: bytes | None = b"# A\n", name: str = "a") -> None:
    folder = fleet / name
    folder.mkdir(parents=True)
    (folder / "butler.toml").write_bytes(toml.encode() if isinstance(toml, str) else toml)
    if persona is not None:
        (folder / "PERSONA.md").write_bytes(persona)


FLEETS: dict[str, tuple[str | bytes, str]] = {
    "broken": ('name = "a\n', "{toml} is not valid TOML: Illegal character '\\n' (at line 1, column 10). Correct it."),
    "encoded": (b'name = "\xff"\n', "{toml} is not UTF-8 text. Save it as UTF-8."),
    "unknown": (GOOD + 'modles = "x"\n', "{toml} has the unknown key `modles`. Did you mean `modules`?"),
    "strange": (
        GOOD + "zzz = 1\n",
        "{toml} has the unknown key `zzz`. Choose from: " + ", ".join(KEYS) + ".",
    ),
    "nameless": (
        'description = "x"\n',
        "{toml} has no valid name. Use a small letter, then up to 30 of a-z, 0-9 and _.",
    ),
    "shouting": (
        GOOD.replace('"a"', '"A-b"'),
        "{toml} has no valid name. Use a small letter, then up to 30 of a-z, 0-9 and _.",
    ),
    "reserved": (
        GOOD.replace('"a"', '"console"'),
        "{toml}: `console` is a reserved name. Choose another name.",
    ),
    "mute": ('name = "a"\n', "{toml} has no description. Say in one sentence what the butler is for."),
}


@pytest.mark.parametrize("case", FLEETS)
def test_a_broken_butler_toml_is_named_with_what_is_wrong(house: House, case: str) -> None:
    toml, told = FLEETS[case]
    fleet = house.folder / f"fleet-{case}"
    butler(fleet, toml)
    demand_refused(house, ("up", "--fleet", str(fleet)), told.format(toml=fleet / "a" / "butler.toml"))
    demand_refused(house, ("migrate",), told.format(toml=fleet / "a" / "butler.toml"), {"BUTLERS_FLEET": str(fleet)})


FLEET_AWAY = "Put it back, choose another with --fleet, or create a butler with `butlers init NAME`."


def test_a_fleet_folder_that_is_no_fleet_is_named(house: House) -> None:
    at = house.folder
    butler(at / "impersonal", GOOD, persona=None)
    butler(at / "scrambled", GOOD, persona=b"\xff\xfe")
    butler(at / "twins", GOOD)
    butler(at / "twins", GOOD, name="b")
    (at / "nested" / "a" / "butler.toml").mkdir(parents=True)
    for fleet, told in {
        "impersonal": f"{at}/impersonal/a/PERSONA.md is missing. Describe who this butler is.",
        "scrambled": f"{at}/scrambled/a/PERSONA.md is not UTF-8 text. Save it as UTF-8.",
        "twins": "Two butlers in the fleet are called `a`. Rename one of them.",
        "nested": f"{at}/nested/a/butler.toml cannot be read: Is a directory. Correct it.",
        "empty": f"The fleet folder {at}/empty contains no butler. Create one with `butlers init NAME`.",
        "nowhere": f"The fleet folder {at}/nowhere does not exist. {FLEET_AWAY}",
        "afile": f"The fleet folder {at}/afile is not a folder. {FLEET_AWAY}",
    }.items():
        for command in (("up",), ("run", "switchboard")):
            demand_refused(house, (*command, "--fleet", str(at / fleet)), told)


ENVIRONMENTS = [
    (
        {"BUTLERS_TELEGRAM_TOKEN": "s3cret"},
        (
            "BUTLERS_TELEGRAM_TOKEN is not a bot token as BotFather gives it, <digits>:<letters and digits>. "
            "Correct BUTLERS_TELEGRAM_TOKEN, or remove it."
        ),
    ),
    (
        {"BUTLERS_SMTP_URL": "mail.example.org"},
        "BUTLERS_SMTP_URL is not a URL such as smtp://host:port. Correct BUTLERS_SMTP_URL, or remove it.",
    ),
    (
        {"BUTLERS_SMTP_URL": "smtp://u:s3cret@mail.example.org:99999"},
        "BUTLERS_SMTP_URL is not a URL such as smtp://host:port. Correct BUTLERS_SMTP_URL, or remove it.",
    ),
    (
        {"BUTLERS_PORT_BASE": "abc"},
        "BUTLERS_PORT_BASE ('abc') is not a port between 1024 and 65400. Correct BUTLERS_PORT_BASE, or remove it.",
    ),
    (
        {"BUTLERS_HOST": "0.0.0.0"},
        (
            "BUTLERS_HOST is 0.0.0.0, which other machines can reach, and there is no TLS. Set BUTLERS_TLS_CERT and "
            "BUTLERS_TLS_KEY for `butlers run`, or keep `butlers up` on 127.0.0.1 behind a proxy; or set "
            "BUTLERS_ALLOW_PLAINTEXT=1 if nobody else uses the network."
        ),
    ),
    (
        {"BUTLERS_HOST": "203.0.113.7", "BUTLERS_ALLOW_PLAINTEXT": "1"},
        "Nothing can listen on 203.0.113.7 here: Cannot assign requested address. Correct BUTLERS_HOST.",
    ),
    (
        {"BUTLERS_TELEGRAM_TOKEN": "1:a", "BUTLERS_TELEGRAM_TOKEN_FILE": "/nowhere"},
        "Both BUTLERS_TELEGRAM_TOKEN and BUTLERS_TELEGRAM_TOKEN_FILE are set. Keep one of them.",
    ),
    (
        {"BUTLERS_SMTP_URL_FILE": "/nowhere"},
        (
            "BUTLERS_SMTP_URL_FILE is /nowhere, which cannot be read (No such file or directory). "
            "Correct the path or its permissions."
        ),
    ),
    (
        {"BUTLERS_TLS_CERT": "/nowhere"},
        "Only one of BUTLERS_TLS_CERT and BUTLERS_TLS_KEY is set. Set both or neither.",
    ),
    (
        {"BUTLERS_TLS_CERT": "/nowhere", "BUTLERS_TLS_KEY": "/nowhere"},
        (
            "The files /nowhere and /nowhere are not a certificate and its key: No such file or directory. "
            "Correct BUTLERS_TLS_CERT and BUTLERS_TLS_KEY."
        ),
    ),
    (
        {"BUTLERS_TLS_CERT": "afile", "BUTLERS_TLS_KEY": "afile"},
        (
            "The files afile and afile are not a certificate and its key: not a PEM pair. "
            "Correct BUTLERS_TLS_CERT and BUTLERS_TLS_KEY."
        ),
    ),
]


@pytest.mark.parametrize(
    ("env", "told"), ENVIRONMENTS, ids=lambda value: "+".join(value) if isinstance(value, dict) else ""
)
def test_a_variable_that_does_not_fit_is_named_and_no_secret_shown(
    house: House, env: dict[str, str], told: str
) -> None:
    demand_refused(house, ("up",), told, env)
    demand_refused(house, ("run", "switchboard"), told, env)


def test_a_certificate_is_refused_where_no_address_of_others_is_its(house: House, tmp_path: Path) -> None:
    both = str(self_signed(tmp_path))
    env = {"BUTLERS_TLS_CERT": both, "BUTLERS_TLS_KEY": both}
    told = (
        "BUTLERS_TLS_CERT is for `butlers run` at the address that BUTLERS_ADVERTISE_URL and the certificate name. "
        "Set both; or remove the certificate, and put a proxy that has it in front of `butlers up`."
    )
    demand_refused(house, ("up",), told, {**env, "BUTLERS_ADVERTISE_URL": "https://house.example.org"})
    demand_refused(house, ("run", "switchboard"), told, env)


def test_an_unknown_variable_is_named_with_the_nearest_one_and_stops_nobody(house: House) -> None:
    code, _, err = run(house, ("contacts", "list"), {"BUTLERS_TELEGRAM_TOKN": "1:a"})
    assert err == (
        "butlers: Unknown environment variable BUTLERS_TELEGRAM_TOKN. Did you mean BUTLERS_TELEGRAM_TOKEN?\n"
    )
    assert code == 0


def test_an_owner_address_that_is_somebody_elses_is_refused_by_its_variable(house: House) -> None:
    code, _, err = run(house, ("contacts", "add", "Zoe", "--email", "zoe@example.com"))
    assert (code, err) == (0, "")
    zoe = json.loads(run(house, ("contacts", "show", "Zoe", "--json"))[1])["id"]
    taken = f"zoe@example.com is already an address of Zoe ({zoe[:8]}). Remove it from that contact first."
    told = f"BUTLERS_OWNER_EMAIL is not valid: {taken}"
    demand_refused(house, ("migrate",), told, {"BUTLERS_OWNER_EMAIL": "zoe@example.com"})
    demand_refused(house, ("contacts", "add", "Ann", "--email", "ZOE@example.com"), taken.replace("zoe@", "ZOE@", 1))


COMMANDS = [
    (
        ("run", "nobody"),
        ("Unknown name `nobody`. Choose from: switchboard, messenger, console, sandbox, fleet, greeter, health."),
    ),
    (("token", "nobody"), f"Unknown butler `nobody`. {KNOWN}"),
    (("mcp-config", "nobody"), f"Unknown butler `nobody`. {KNOWN}"),
    (("notify", "--as", "nobody", "--channel", "telegram", "--message", "x"), f"Unknown butler `nobody`. {KNOWN}"),
    (
        ("notify", "--as", "greeter", "--channel", "telegram", "--message", "x"),
        "greeter is not running. Start it with `butlers up`.",
    ),
    (("mcp-config", "greeter"), "greeter is not running. Start it with `butlers up`."),
    (("token", "greeter", "--for", "3x"), f"'3x' is not a duration of up to ten years. {A_LENGTH}"),
    (("token", "greeter", "--for", "30"), f"'30' has no unit. {WITH_UNIT}"),
    (("rules", "add", "--recipient", "4242", "--expires", "30"), f"'30' has no unit. {WITH_UNIT}"),
    (("brake", "on", "--for", "2"), f"'2' has no unit. {WITH_UNIT}"),
    (("token", "greeter", "--for", "0d"), f"'0d' is not a duration of up to ten years. {A_LENGTH}"),
    (("rules", "add", "--recipient", "4242", "--expires", ""), f"'' is not a duration of up to ten years. {A_LENGTH}"),
    (
        ("mcp-config", "greeter", "--for", "emacs"),
        "Unknown client `emacs`. Choose from: claude-code, claude-desktop, vscode, codex; or leave --for out.",
    ),
    (("logs", "--level", "loud"), "Unknown level `loud`. Choose from: debug, info, warning, error, critical."),
    (("contacts", "add", ""), "The name is not valid. Give one line of 1 to 200 characters."),
    (("contacts", "add", "x" * 201), "The name is not valid. Give one line of 1 to 200 characters."),
    (("contacts", "add", "Ann\nBob"), "The name is not valid. Give one line of 1 to 200 characters."),
    (("contacts", "add", "ann@example.com"), NO_NAME),
    (("contacts", "add", "4242"), NO_NAME),
    (("contacts", "rename", "Owner", "@ann"), NO_NAME),
    (("contacts", "rename", "Owner", " Owner "), "The name is Owner already. Give another one."),
    (
        ("contacts", "remove", "Owner"),
        "You are the owner and cannot be removed. Rename the contact, or change its addresses.",
    ),
    (
        ("contacts", "add", "Ann", "--email", "ann at home"),
        f"--email is not valid: The recipient contains a space inside. {EMAIL}",
    ),
    (
        ("contacts", "add", "Ann", "--email", "ann@example.com", "--telegram", "ann"),
        (
            "--telegram is not valid: The recipient is neither an e-mail address, nor a numeric chat id, "
            f"nor an @username. {TELEGRAM}"
        ),
    ),
    (
        ("contacts", "add", "Ann", "--role", "owner"),
        "There is already an owner. Change that contact with `butlers contacts set`.",
    ),
    (
        ("contacts", "add", "Ann", "--role", "owner", "--telegram", "-100123"),
        (
            "--telegram of the owner is not the number of a person's own chat; `butlers pair telegram` finds it. "
            "Correct it."
        ),
    ),
    (("contacts", "add", "Ann", "--role", "king"), "Unknown role `king`. The only role is owner."),
    (
        ("contacts", "set", NO_ONE, "--email", "ann@example.com"),
        f"No contact matches `{NO_ONE}`. See `butlers contacts list`.",
    ),
    (
        ("contacts", "set", "zz", "--email", "ann@example.com"),
        "No contact matches `zz`. See `butlers contacts list`.",
    ),
    (
        ("contacts", "set", "", "--email", "ann@example.com"),
        "No contact matches ``. See `butlers contacts list`.",
    ),
    (("contacts", "set", NO_ONE), "No address given. Give --telegram or --email."),
    (("contacts", "show", "zz"), "No contact matches `zz`. See `butlers contacts list`."),
    (
        ("approvals", "list", "--status", "odd"),
        (
            "Unknown status `odd`. Choose from: pending, approved, denied, "
            "expired, cancelled, executing, executed, failed, uncertain."
        ),
    ),
    (("approvals", "show", "zz"), "No approval matches the id `zz`. See `butlers approvals list --all`."),
    (("approvals", "approve", "zz"), "No approval matches the id `zz`. See `butlers approvals list --all`."),
    (
        ("approvals", "deny", NO_ONE),
        f"No approval matches the id `{NO_ONE}`. See `butlers approvals list --all`.",
    ),
    (("pair", "telegram"), "BUTLERS_TELEGRAM_TOKEN is not set. Get a token from @BotFather and set it."),
    (("init", "Bad Name"), "`Bad Name` is not a valid name for a butler. Use a small letter, then a-z, 0-9 and _."),
    (
        ("init", "owner"),
        (
            "`owner` is a reserved name. Choose another name; reserved are all, console, fleet, messenger, owner, "
            "sandbox, switchboard, up."
        ),
    ),
    (("init", "x", "--fleet", "afile"), "afile/x cannot be created: Not a directory. Correct --fleet."),
]


@pytest.mark.parametrize(
    ("argv", "told"), COMMANDS, ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else ""
)
def test_a_command_that_cannot_be_done_says_so(house: House, argv: tuple[str, ...], told: str) -> None:
    demand_refused(house, argv, told)


def test_an_empty_id_never_stands_for_the_only_approval_there_is(house: House) -> None:
    execute(
        house.dsn,
        f"INSERT INTO shared.pending_actions (id, origin_butler, tool_args) VALUES ('{NO_ONE}', 'greeter', '{{}}')",
    )
    try:
        demand_refused(
            house,
            ("approvals", "approve", ""),
            "No approval matches the id ``. See `butlers approvals list --all`.",
        )
    finally:
        execute(house.dsn, "DELETE FROM shared.pending_actions")


def test_an_unreachable_telegram_offers_no_pairing(house: House) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        env = {"BUTLERS_TELEGRAM_TOKEN": "1:a", "BUTLERS_TELEGRAM_BASE_URL": url}
        told = f"{url} cannot be reached. Try again, or correct BUTLERS_TELEGRAM_BASE_URL."
        demand_refused(house, ("pair", "telegram"), told, env)


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (("frobnicate",), "No such command 'frobnicate'."),
        (("statsu",), "Did you mean 'status'?"),
        (("approvals", "lst"), "Did you mean 'list'?"),
        (("status", "--jsn"), "No such option: --jsn (Possible options: --json)"),
        (("up", "--nope"), "No such option: --nope"),
        (("run",), "Missing argument 'name'."),
        (("run", "messenger", "--port", "70000"), "less than or equal to 65535"),
        (("notify", "--as", "greeter"), "Missing option '--channel'."),
    ],
)
def test_wrong_usage_ends_with_two(house: House, argv: tuple[str, ...], part: str) -> None:
    code, out, err = run(house, argv)
    assert (code, out) == (2, "")
    assert part in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "argv",
    [
        ("status",),
        ("contacts", "list"),
        ("approvals", "list"),
        ("notify", "--as", "greeter", "--channel", "telegram", "--message", "x"),
        ("mcp-config", "greeter"),
        ("run", "switchboard"),
    ],
    ids=" ".join,
)
def test_while_nothing_runs_a_command_says_how_to_start(house: House, embedded: Path, argv: tuple[str, ...]) -> None:
    env = {"DATABASE_URL": DROPPED, "BUTLERS_HOME": str(embedded)}
    demand_refused(house, argv, f"The database is not running. {START_UP}", env)


def test_a_home_on_a_database_of_its_own_never_falls_back_to_the_embedded_one(house: House) -> None:
    told = (
        f"This home works on a database of its own, {place_of(house.dsn)}. Set DATABASE_URL. To go back to the "
        f'embedded one, first remove the line that begins with "DATABASE" from {house.home}/settings.json.'
    )
    for argv in (("contacts", "list"), ("restored",), ("backup", "file"), ("run", "greeter"), ("migrate",), ("up",)):
        demand_refused(house, argv, told, {"DATABASE_URL": DROPPED})


@pytest.mark.parametrize(
    ("argv", "remedy"),
    [
        (("status",), "Correct --home or BUTLERS_HOME."),
        (("--home", "{home}", "doctor"), "Correct --home or BUTLERS_HOME."),
        (("run", "switchboard"), "Run `butlers migrate` first, or correct --home or BUTLERS_HOME."),
    ],
    ids=str,
)
def test_where_no_home_is_a_command_says_so_and_makes_none(house: House, argv: tuple[str, ...], remedy: str) -> None:
    home = str(house.folder / "nohome")
    argv = tuple(word.format(home=home) for word in argv)
    demand_refused(house, argv, f"There is no installation in {home}. {remedy}", {"BUTLERS_HOME": home})


def test_missing_and_broken_keys_are_named(house: House) -> None:
    begun = house.folder / "begun"
    (begun / "keys").mkdir(parents=True)
    for argv, name in ((("run", "switchboard"), "switchboard"), (("contacts", "list"), "owner")):
        told = f"There are no keys for {name} in {begun}/keys/{name}. Run `butlers migrate` first."
        demand_refused(house, (*argv, "--home", str(begun)), told)
    broken = house.folder / "broken" / "keys" / "owner"
    broken.mkdir(parents=True)
    for name in ("key.pem", "password", "secret"):
        (broken / name).write_bytes(b"\xff")
    told = (
        f"The keys for owner in {broken} cannot be read: the password is not plain text. "
        "Correct BUTLERS_HOME, or start as the user who made it."
    )
    demand_refused(house, ("contacts", "list", "--home", str(house.folder / "broken")), told)
