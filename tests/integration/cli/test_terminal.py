"""Whatever others write into rows, files and answers moves no terminal: every command is found, run and looked at."""

import ast
import asyncio
import json
import re
import shutil
import sys
import unicodedata
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Final

import asyncpg
import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from typer import Typer
from typer.testing import CliRunner

import butlers.cli
from butlers.cli import app as commands
from shared.db.pool import prepare_connection
from tests.rig.bench import Bench, House
from tests.rig.fleet import OFFSETS
from tests.rig.served import served

# Deletes the line above, colours, writes backwards, hides letters, and begins lines that pass for ours.
HOSTILE: Final = (
    "\x1b[1A\x1b[2K\x9b31m\x07\x7f\u202e\u2066x\u200b\ufeff\u00ady\nFORGED\rFORGED\tz\u2028FORGED\x85FORGED\U000e0041"
)
FORGED: Final = "FORGED"
# What begins as a time in JSON, and the one form it has.
DATE: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]")
RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
ID: Final = "00000000-0000-4000-8000-00000000000{}"
CONTACT, TOLD, ACTION, DONE, DELIVERY, RULE, TOKEN, ROUTED_BY = (ID.format(n) for n in range(1, 9))
MESSAGE: Final = ID.format(9)
CHAT: Final = "6111222333"
ENVELOPE: Final = {
    "schema_version": "notify.v1",
    "origin_butler": "health",
    "delivery": {"intent": "send", "channel": "telegram", "message": HOSTILE, "subject": HOSTILE, "recipient": "77"},
    "request_context": {"request_id": HOSTILE, HOSTILE: HOSTILE},
}
ROWS: Final = (
    "INSERT INTO shared.contacts (id, name) VALUES ($1::uuid, $2)",
    "INSERT INTO shared.contact_info (contact_id, type, value, is_primary) VALUES ($1::uuid, 'telegram', $2, true)",
    "INSERT INTO shared.contact_info (contact_id, type, value) VALUES ($1::uuid, left($2::text, 40), $2)",
    """
    INSERT INTO shared.notifications (id, origin_butler, admitted_by, realm, key, lineage, request_sha, envelope, whom,
        third_party, status, answer)
    SELECT id::uuid, 'health', $2::text, $2, id, $2, $2, $3::jsonb, 'contact:' || $1::text, false, status,
        jsonb_build_object('message', $2, $2, $2)
    FROM (VALUES ($4::text, 'pending_approval'), ($5::text, 'error')) put (id, status)
    """,
    """
    INSERT INTO shared.pending_actions (id, origin_butler, tool_name, tool_args, content_sha, agent_summary,
        notification_id, status, decision_reason, decided_at, session_id)
    VALUES ($1::uuid, 'health', $3, jsonb_build_object($3::text, $3, 'to', $3, 'recipient', $3), $3, $3, $1::uuid,
            'pending', NULL, NULL, $3),
        ($2::uuid, 'health', $3, '{}', $3, $3, $2::uuid, 'denied', $3, clock_timestamp(), $3)
    """,
    """
    INSERT INTO shared.approval_events (event_type, action_id, notification_id, actor, reason, detail)
    VALUES ($2, $1::uuid, $1::uuid, 'health', $2, jsonb_build_object('surface', $2::text, $2, $2)),
        ('parked', $1::uuid, $1::uuid, $2, $2, jsonb_build_object('surface', $2)),
        ('approved', $1::uuid, $1::uuid, 'owner', $2, jsonb_build_object('surface', $2, 'contact', $2)),
        ('token_made', NULL, NULL, 'owner', $2, jsonb_build_object('surface', $2, 'butler', $2, 'token', $2)),
        ('contact_made', NULL, NULL, 'owner', $2, jsonb_build_object('person', $3::text, 'surface', $2))
    """,
    """
    INSERT INTO messenger.deliveries (id, notification_id, class, channel, address, status, reason, origin_butler)
    VALUES ($1::uuid, $2::uuid, 'third_party', 'telegram', $3, 'uncertain', $3, $3)
    """,
    "INSERT INTO messenger.parts (delivery_id, n, wire_sha, status, provider_id) VALUES ($1::uuid, 1, $2, 'sent', $2)",
    """
    INSERT INTO messenger.attempts (delivery_id, n, attempt, marked_at, ended_at, outcome, detail)
    VALUES ($1::uuid, 1, 1, clock_timestamp(), clock_timestamp(), $2, $2)
    """,
    """
    INSERT INTO switchboard.routes (request_id, origin_butler, target_butler, tool, notification_id, status,
        error_class)
    VALUES ($2, $2, $2, $2, $1::uuid, $2, $2)
    """,
    """
    INSERT INTO switchboard.butlers (name, url, kind)
    VALUES ($1, 'http://127.0.0.1:1', 'butler'), ('health', $1, 'butler')
    """,
    """
    INSERT INTO messenger.circuit_breakers (channel, reason, detail, since, next_probe_at)
    VALUES ($1, 'unreachable', $1, clock_timestamp(), clock_timestamp())
    """,
    """
    INSERT INTO messenger.rate_limits (key, free_at, told_at)
    VALUES ($1, clock_timestamp() + interval '1 hour', clock_timestamp())
    """,
    """
    INSERT INTO shared.approval_rules (id, origin_butler, arg_constraints, description, effect)
    VALUES ($1::uuid, $2, jsonb_build_object('recipient', $2::text, $2, $2), $2, 'deny')
    """,
    "INSERT INTO shared.brakes (butler) VALUES ($1)",
    """
    INSERT INTO shared.client_tokens (jti, butler, expires_at)
    VALUES ($1 || $2::text, $2, clock_timestamp() + interval '1 hour')
    """,
    """
    INSERT INTO shared.sessions (id, butler, cause, prompt, runtime, status, began_at, said, outcome)
    VALUES ($1::uuid, 'health', left($2, 100), $2, 'script', 'running', clock_timestamp(), $2, $2)
    """,
    """
    INSERT INTO shared.session_steps (session_id, butler, seq, tool, arguments_hash)
    VALUES ($1::uuid, 'health', 1, $2, 'h')
    """,
    "INSERT INTO shared.keyring (name, public_key) SELECT $1, public_key FROM shared.keyring LIMIT 1",
    """
    INSERT INTO switchboard.routing_rules (id, channel, sender, words)
    VALUES ($1::uuid, left($2::text, 30), $2, $2)
    """,
    """
    INSERT INTO switchboard.inbox (id, channel, endpoint_identity, external_event_id, sender, text, request_context,
        routed_to)
    VALUES ($1::uuid, 'telegram', '1', '1', $2, $3, '{}', 'health')
    """,
)
VALUES: Final[Sequence[tuple[object, ...]]] = (
    (CONTACT, HOSTILE),
    (CONTACT, CHAT),
    (CONTACT, HOSTILE),
    (CONTACT, HOSTILE, ENVELOPE, TOLD, DONE),
    (TOLD, DONE, HOSTILE),
    (TOLD, HOSTILE, CONTACT),
    (DELIVERY, DONE, HOSTILE),
    (DELIVERY, HOSTILE),
    (DELIVERY, HOSTILE),
    (DONE, HOSTILE),
    (HOSTILE,),
    (HOSTILE,),
    (HOSTILE,),
    (RULE, HOSTILE),
    (HOSTILE,),
    (TOKEN, HOSTILE),
    (DONE, HOSTILE),
    (DONE, HOSTILE),
    (HOSTILE,),
    (ROUTED_BY, HOSTILE),
    (MESSAGE, "77", "hello"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """The arguments behind a command's name, its exit code, and what it must say."""

    argv: tuple[str, ...] = ()
    code: int = 0
    says: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


# Every command there is; one that is added is added here. `{port}` is where a daemon lies to whoever asks it.
RUNS: Final[Mapping[str, Sequence[Run]]] = {
    "approvals list": [Run(says=CHAT)],
    "approvals show": [Run((TOLD,), says=CHAT), Run((DONE,)), Run((HOSTILE,), 1)],
    "approvals approve": [Run((TOLD,), 1, "It cannot be sent: "), Run((HOSTILE,), 1)],
    "approvals resolve": [Run((TOLD, "ran"), 1, "It is no tool call"), Run((HOSTILE, "ran"), 1)],
    "approvals edit": [Run((TOLD, "--message", HOSTILE), 1)],
    "approvals deny": [Run((TOLD, "--reason", HOSTILE), says=CHAT), Run((DONE,), 1, "Already denied")],
    "ask": [Run((HOSTILE, "x"), 1), Run(("health", HOSTILE), 1, "Nothing thinks for `health` here.")],
    "audit changes": [Run(says="A client token for ")],
    "audit list": [Run(says="parked"), Run(("--about", HOSTILE)), Run(("--event", HOSTILE))],
    "audit show": [
        *(Run((str(line),)) for line in range(1, 6)),
        *(Run(("--", str(line)), 1, f"The log has no line {line}.") for line in (0, 10**20, -(10**20))),
    ],
    "audit export": [Run(("-",), says="butlers audit.v1")],
    "audit verify": [Run(), Run(("--head", HOSTILE), 1)],
    "backup": [Run((HOSTILE,), 1, "one of your own")],
    "brake status": [Run()],
    "brake on": [Run(("--butler", HOSTILE), 0), Run(("--contact", f"{HOSTILE}x"), 1), Run(("--channel", HOSTILE), 1)],
    "routes list": [Run(says="nobody"), Run(("--json",), says=ROUTED_BY)],
    "routes add": [
        Run(("health", "--channel", "telegram", "--from", CHAT)),
        Run(("nobody", "--words", HOSTILE)),
        Run(("nobody", "--message", MESSAGE)),
        Run(("nobody", "--message", MESSAGE, "--from", CHAT), 1, "Leave out --channel and --from"),
        Run(("nobody", "--message", HOSTILE), 1, "The id of no message begins"),
        Run(("health",), 1, "would fit every message"),
        Run(("health", "--from", CHAT), 1, "needs its channel"),
        Run(("switchboard", "--words", "x"), 1, "is no butler"),
        Run((f"{HOSTILE}x", "--words", "x"), 1, "Unknown butler"),
    ],
    "routes allow": [Run(("health", CONTACT)), Run((f"{HOSTILE}x", CONTACT), 1), Run(("health", f"{HOSTILE}x"), 1)],
    "history": [Run((CONTACT,), says=""), Run((f"{HOSTILE}x",), 1)],
    "routes remove": [Run((ROUTED_BY,), says="Removed"), Run((HOSTILE,), 1)],
    "brake off": [Run(("--butler", HOSTILE)), Run(("--channel", "email"), 1)],
    "config dump": [Run(env={"BUTLERS_OWNER_NAME": "Ida"}), Run(env={"BUTLERS_NO_SUCH\x1b[2K": HOSTILE})],
    "contacts list": [Run(says=CHAT)],
    "contacts show": [Run((CONTACT,), says=CHAT), Run((f"{HOSTILE}x",), 1)],
    "contacts add": [Run((HOSTILE,), 1), Run(("Ida", "--telegram", HOSTILE), 1)],
    "contacts forget": [Run((CONTACT, "--telegram", HOSTILE), 1), Run((HOSTILE, "--email", HOSTILE), 1)],
    "contacts remove": [Run((f"{HOSTILE}x",), 1)],
    "contacts rename": [Run((CONTACT, HOSTILE), 1), Run((f"{HOSTILE}x", "Ida"), 1)],
    "contacts set": [Run((CONTACT, "--telegram", HOSTILE), 1), Run((HOSTILE, "--email", HOSTILE), 1)],
    "deliveries list": [Run(), Run(("--status", HOSTILE), 1)],
    "deliveries show": [Run((DELIVERY,)), Run((HOSTILE,), 1)],
    "deliveries resolve": [Run((DELIVERY, HOSTILE), 1), Run((HOSTILE, "leave"), 1)],
    "deliveries retry": [Run((DELIVERY,), 1)],
    "desk install": [Run(("--home", HOSTILE), 2)],
    "desk mcp": [Run(("--http", HOSTILE), 2)],
    "desk pair": [Run(code=1)],
    "desk run": [Run(code=1)],
    "desk sign-in": [Run((HOSTILE,), 1)],
    "doctor": [Run(code=1), Run(("--fleet", HOSTILE), 1)],
    "fleet check": [Run(says="no mistake"), Run(("--fleet", "{folder}/hostile"), 1, "is not valid TOML")],
    "go-live": [Run(("--email-from", HOSTILE), 1), Run(("--contacts", HOSTILE), 1)],
    "init": [Run((HOSTILE,), 1), Run(("ida", "--fleet", "{folder}/new\x1b[2K"))],
    "keys list": [Run()],
    "keys rotate": [Run((HOSTILE,), 1)],
    "keys retire": [Run((HOSTILE,), 1)],
    "logs": [Run(says="<U+001B>"), Run(("--daemon", HOSTILE)), Run(("--level", HOSTILE), 1)],
    "manictime mcp": [Run(("--timezone", HOSTILE), 1)],
    "mcp-config": [Run(("health",), env={"BUTLERS_PORT_BASE": "{port}"}), Run((HOSTILE,), 1)],
    "migrate": [Run(("--fleet", "{folder}/hostile"), 1)],
    "notify": [Run(("--as", "health", "--channel", "telegram"), env={"BUTLERS_PORT_BASE": "{port}"})],
    "pair telegram": [Run(code=1)],
    "questions list": [Run()],
    "questions show": [Run((HOSTILE,), 1)],
    "questions answer": [Run((HOSTILE, "--text", HOSTILE), 1)],
    "reload": [Run(code=1, says="No process"), Run(("--fleet", "{folder}/hostile"), 1)],
    "restore": [Run((HOSTILE,), 1, "one of your own")],
    "rules list": [Run()],
    "rules add": [Run(("--recipient", HOSTILE), 1), Run(("--recipient", CHAT, "--butler", "nobody"), 1)],
    "rules revoke": [Run((HOSTILE,), 1)],
    "rules test": [Run((RULE,)), Run((HOSTILE,), 1)],
    "run": [Run((HOSTILE,), 1), Run(("health", "--fleet", "{folder}/hostile"), 1)],
    "schedules list": [Run(("health",)), Run((HOSTILE,))],
    "schedules remove": [Run(("health", HOSTILE), 1)],
    "sessions list": [Run(says="running"), Run(("--butler", HOSTILE))],
    "sessions show": [Run((DONE,), says="running"), Run((HOSTILE,), 1)],
    "sessions stop": [Run((HOSTILE,), 1), Run((DONE,))],
    "restored": [Run()],  # after those about sessions, which it ends
    "sign-in": [Run(code=1)],
    "status": [Run()],
    "token": [Run((HOSTILE,), 1)],
    "tokens list": [Run()],
    "tokens revoke": [Run((HOSTILE,), 1), Run((TOKEN,))],
    "up": [Run(("--fleet", "{folder}/hostile"), 1)],
    "why": [Run((TOLD,), says=CHAT), Run((DONE,)), Run((HOSTILE,), 1)],
}


def leaves(commands: Typer, before: str = "") -> Iterator[tuple[str, bool]]:
    """Every command that does something, by its words, and whether it has an answer for programs."""
    for one in commands.registered_commands:
        assert one.callback is not None
        name = one.name or one.callback.__name__.replace("_", "-")
        yield f"{before}{name}", "as_json" in signature(one.callback).parameters
    for group in commands.registered_groups:
        assert group.typer_instance is not None
        yield from leaves(group.typer_instance, f"{before}{group.name} ")


COMMANDS: Final = dict(leaves(commands.build()))


async def lie(request: Request) -> JSONResponse:
    """A daemon that answers as health, with words of its own."""
    told = {"status": "ok", "message": HOSTILE, HOSTILE: HOSTILE}
    return JSONResponse({"name": "health"} if request.method == "GET" else told)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def liar() -> AsyncIterator[str]:
    """The first port of a block in which the butler health is not who it says."""
    async with served(Starlette(routes=[Route("/{path:path}", lie, methods=["GET", "POST"])]), lifespan="off") as url:
        yield str(int(url.rpartition(":")[2]) - OFFSETS["health"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(bench: Bench) -> AsyncIterator[House]:
    """One in whose rows, fleet and answers others have written what they could."""
    made = await bench.house()
    (made.folder / "new").mkdir()
    connection = await asyncpg.connect(made.dsn)
    try:
        await prepare_connection(connection)
        for statement, values in zip(ROWS, VALUES, strict=True):
            await connection.execute(statement, *values)
    finally:
        await connection.close()
    logged = made.settings.home / "logs"
    logged.mkdir(exist_ok=True)
    line = {"at": "2026-11-25T13:52:00Z", "event": HOSTILE, HOSTILE: HOSTILE}
    (logged / "health.jsonl").write_text(json.dumps(line) + "\n")
    folder = made.folder / "hostile" / "a\x1b[2K"
    folder.mkdir(parents=True)
    (folder / "butler.toml").write_text('name = "ida"\ndescription = "\x1b[2K"\n')
    yield made
    made.close()
    shutil.rmtree(made.folder)


def test_no_command_is_forgotten() -> None:
    assert sorted(RUNS) == sorted(COMMANDS)


def test_the_words_that_are_tried_would_show() -> None:
    assert {unicodedata.category(one) for one in HOSTILE} >= HIDDEN - {"Cs", "Co", "Zp"}
    assert list(hidden(HOSTILE, "\x1b[2K", "FORGED")) != []


def test_nothing_prints_but_the_terminal() -> None:
    folder = Path(butlers.cli.__file__).parent
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case (
                    ast.Call(func=ast.Name(id="print"))
                    | ast.Call(func=ast.Attribute(attr="echo" | "secho"))
                    | ast.Call(func=ast.Attribute(value=ast.Attribute(attr="stdout" | "stderr"), attr="write"))
                ):
                    assert path.name == "terminal.py", f"{path.name}:{node.lineno} prints by itself"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", RUNS)
async def test_a_terminal_is_given_nothing_that_moves_it(house: House, liar: str, name: str) -> None:
    for run, as_json in [(run, as_json) for run in RUNS[name] for as_json in (False, True)[: 1 + COMMANDS[name]]]:
        argv = [*name.split(), *(["--json"] if as_json else []), *(one.format(folder=house.folder) for one in run.argv)]
        env = {**house.env, **{key: value.format(port=liar) for key, value in run.env.items()}}
        code, out, err = await asyncio.to_thread(call, argv, env)
        assert code == run.code, (argv, out[-2000:], err[-2000:])
        assert list(hidden(out, err)) == [], (argv, out, err)
        if as_json:
            assert out.isascii()
            told = json.loads(out) if out and not code else {}
            assert [one for one in strings(told) if DATE.match(one) and not RFC_3339.fullmatch(one)] == [], argv
        else:
            assert run.says in out + err, (argv, out, err)


def strings(value: object) -> Iterator[str]:
    """Every text in what a program is told."""
    match value:
        case str(text):
            yield text
        case dict(fields):
            yield from (text for one in fields.values() for text in strings(one))
        case list(items):
            yield from (text for one in items for text in strings(one))


def call(argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, str, str]:
    """Run `butlers ARGV` to its end: its exit code, and what it wrote to either stream."""
    code = 0
    with CliRunner().isolation(env=env) as (out, err, _):
        try:
            commands.run(argv)
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            sys.excepthook = sys.__excepthook__
        sys.stdout.flush()
        sys.stderr.flush()
        return code, out.getvalue().decode(), err.getvalue().decode()


def hidden(*texts: str) -> Iterator[str]:
    """What a terminal would obey or not show, and lines that somebody else began."""
    for text in texts:
        yield from (f"U+{ord(one):04X}" for one in text if one != "\n" and unicodedata.category(one) in HIDDEN)
        yield from (line for line in text.split("\n") if line.startswith(FORGED))
