"""The command line beside a running fleet: what it asks, what it takes, and what it prints for others to read."""

import asyncio
import json
import signal
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest
from starlette.responses import JSONResponse

from shared.hashing import reference
from tests.rig import fresh
from tests.rig.bench import OWNER
from tests.rig.fleet import Fleet
from tests.rig.served import served
from tests.rig.waiting import until

ROOT: Final = Path(__file__).resolve().parents[2]
# The command with its modules named at the end, on the stream for people.
LISTED: Final = """
import sys
from butlers.cli import main
try:
    main()
finally:
    sys.stderr.write(" ".join(sys.modules))
"""
SERVERS: Final = {
    *("aiohttp", "aiosmtplib", "alembic", "fastmcp", "jinja2", "mcp", "messenger", "prometheus_client"),
    *("sqlalchemy", "starlette", "structlog", "switchboard", "telegram", "uvicorn"),
}
COMMANDS: Final = [("notify", "--as", "health", "--channel", "telegram"), ("mcp-config", "health"), ("sign-in",)]
GONE: Final = "INSERT INTO switchboard.butlers (name, url, kind) VALUES ('gone', 'http://127.0.0.1:9', 'butler')"
OTHER: Final = "INSERT INTO switchboard.butlers (name, url, kind) VALUES ('other', $1, 'butler')"
REMARK: Final = "The mailbox cannot be read."


async def run(fleet: Fleet, *argv: str, given: bytes = b"") -> tuple[int, str, str]:
    """Run a command in a process of its own, which has imported nothing before; all it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LISTED, *argv),
        cwd=ROOT,
        env=dict(fleet.house.env),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(given)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def told(fleet: Fleet, *argv: str) -> str:
    code, out, wrong = await fleet.house.butlers(*argv)
    assert code == 0, (argv, out, wrong)
    return out


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
async def test_a_client_command_imports_no_server(fleet: Fleet, argv: tuple[str, ...]) -> None:
    words = ("--message", fresh.words("light")) if argv[0] == "notify" else ()
    code, _, modules = await run(fleet, *argv, *words)
    assert code == 0
    assert {name.partition(".")[0] for name in modules.split()} & SERVERS == set()


async def test_the_text_comes_from_standard_input_as_it_is(fleet: Fleet) -> None:
    words = f"{fresh.words('piped')}\n  Grüße -\n"
    argv = ("notify", "--as", "health", "--channel", "telegram", "--message", "-")
    code, out, _ = await run(fleet, *argv, given=f"{words}\n".encode())
    assert (code, json.loads(out)["status"]) == (0, "ok")
    assert (await fleet.outside.arrived("Grüße -", OWNER)).text == words
    code, out, err = await run(fleet, *argv, given=b"\xff")
    assert (code, out) == (1, "")
    assert "What comes on standard input is not UTF-8 text. Send it as UTF-8." in err


async def test_a_contact_is_meant_by_its_name_or_the_beginning_of_its_id(fleet: Fleet) -> None:
    name, chat = f"Wilhelmine {fresh.words('named')}", fresh.chat()
    contact = await fleet.contact(name, telegram=chat)
    argv = ("notify", "--as", "health", "--channel", "telegram", "--message", fresh.words("to her"))
    answers = [json.loads(await told(fleet, *argv, "--contact-id", said)) for said in (contact, contact[:13], name)]
    answers.append(json.loads(await told(fleet, *argv, "--to", name)))
    assert len({one["action_id"] for one in answers}) == 1
    code, out, wrong = await fleet.house.butlers(*argv, "--contact-id", f"{name} not")
    assert (code, out) == (1, "")
    assert wrong.startswith(f"butlers: No contact matches `{name} not`.")
    await told(fleet, "approvals", "deny", answers[0]["action_id"])


async def test_it_says_its_version_helps_by_one_letter_and_completes(fleet: Fleet) -> None:
    assert await told(fleet, "--version") == f"butlers {version('butlers')}\n"
    for argv in ((), ("notify",), ("approvals", "list")):
        assert await told(fleet, *argv, "-h") == await told(fleet, *argv, "--help")
    code, out, _ = await fleet.house.butlers(
        _BUTLERS_COMPLETE="complete_bash", COMP_WORDS="butlers appr", COMP_CWORD="1"
    )
    assert (code, out.strip()) == (0, "approvals")


async def test_several_are_decided_at_once_and_what_fails_stops_no_other(fleet: Fleet) -> None:
    words, chat = fresh.words("several"), fresh.chat()
    asked = [await fleet.notify(channel="telegram", message=f"{words} {n}", recipient=str(chat)) for n in range(3)]
    ids = [str(one["action_id"]) for one in asked]
    code, out, wrong = await fleet.house.butlers("approvals", "approve", ids[0], "nothing", ids[1])
    assert (code, out.count("Approved. Sending.")) == (1, 2)
    assert wrong.startswith("butlers: nothing: No approval matches the id `nothing`")
    for n in range(2):
        await fleet.outside.arrived(f"{words} {n}", chat)
    pending = [one["id"] for one in json.loads(await told(fleet, "approvals", "list", "--json"))["actions"]]
    assert (ids[2] in pending, set(pending) & set(ids[:2])) == (True, set())
    everything = [one["id"] for one in json.loads(await told(fleet, "approvals", "list", "--all", "--json"))["actions"]]
    assert set(ids) <= set(everything)
    listed = await told(fleet, "approvals", "list")
    [line] = [line for line in listed.splitlines() if line.startswith(ids[2][:8])]
    assert f"unknown ({chat})" in line
    assert "  telegram  " in line
    assert (await told(fleet, "approvals", "show", ids[2])).startswith(f"unknown ({chat}) by telegram\nid: {ids[2]}\n")
    await told(fleet, "approvals", "deny", ids[2])


async def test_the_reference_of_a_card_names_the_message_everywhere(fleet: Fleet) -> None:
    words, chat = fresh.words("referred"), fresh.chat()
    answer = await fleet.notify(channel="telegram", message=words, recipient=str(chat))
    await told(fleet, "approvals", "approve", str(answer["action_id"]))
    await fleet.outside.arrived(words, chat)
    delivery = await fleet.value(
        "SELECT id::text FROM messenger.deliveries WHERE notification_id = $1::text::uuid", answer["notification_id"]
    )
    ref = reference(str(delivery))
    assert f"delivery {delivery}, ref {ref}, by telegram" in await told(fleet, "why", ref)
    for said in (ref, ref.lower()):
        shown = json.loads(await told(fleet, "approvals", "show", said, "--json"))
        assert (shown["id"], shown["reference"]) == (answer["action_id"], ref)
        assert json.loads(await told(fleet, "why", said, "--json"))["notification_id"] == answer["notification_id"]
        assert json.loads(await told(fleet, "deliveries", "show", said, "--json"))["id"] == delivery
    assert ref in await told(fleet, "approvals", "list", "--all")


async def test_a_rule_says_until_when_it_is_valid(fleet: Fleet) -> None:
    code, out, remark = await fleet.house.butlers("rules", "add", "--recipient", str(fresh.chat()), "--expires", "30d")
    rules = json.loads(await told(fleet, "rules", "list", "--json"))["rules"]
    [rule] = [one for one in rules if one["id"] == out.strip()]
    assert (code, remark) == (0, f"It is valid until {rule['expires_at'][:19]}Z.\n")
    await told(fleet, "rules", "revoke", rule["id"])


async def test_status_believes_only_a_daemon_that_answers(fleet: Fleet) -> None:
    await fleet.sql(GONE)
    try:
        found: Mapping[str, Mapping[str, object]] = {
            one["name"]: one for one in json.loads(await told(fleet, "status", "--json"))["daemons"]
        }
        assert (found["gone"]["state"], found["gone"]["ready"]) == ("down", False)
        assert str(found["gone"]["last_seen_at"]).endswith("Z")
        assert {found[name]["state"] for name in ("switchboard", "messenger", "console", "health")} == {"ready"}
        [line] = [line for line in (await told(fleet, "status")).splitlines() if line.startswith("gone ")]
        assert "  down  " in line
    finally:
        await fleet.sql("DELETE FROM switchboard.butlers WHERE name = 'gone'")


async def test_status_shows_what_a_daemon_remarks_that_is_ready(fleet: Fleet) -> None:
    answer = JSONResponse({"status": "ready", "troubles": [], "remarks": [REMARK]})
    async with served(answer) as url:
        await fleet.sql(OTHER, url)
        try:
            [line] = [line for line in (await told(fleet, "status")).splitlines() if line.startswith("other ")]
        finally:
            await fleet.sql("DELETE FROM switchboard.butlers WHERE name = 'other'")
    assert "  ready  " in line
    assert line.endswith(REMARK)


async def test_each_client_is_given_what_it_reads(fleet: Fleet) -> None:
    def server(url: str, headers: Mapping[str, str]) -> tuple[str, str]:
        return url, headers["Authorization"].partition(" ")[0]

    urls = {(f"{url}/mcp", "Bearer") for url in fleet.urls("health")}
    read = json.loads(await told(fleet, "mcp-config", "health", "--for", "claude-code"))["mcpServers"]["health"]
    assert (read["type"], server(read["url"], read["headers"]) in urls) == ("http", True)
    read = json.loads(await told(fleet, "mcp-config", "health", "--for", "vscode"))["servers"]["health"]
    assert (read["type"], server(read["url"], read["headers"]) in urls) == ("http", True)
    read = tomllib.loads(await told(fleet, "mcp-config", "health", "--for", "codex"))["mcp_servers"]["health"]
    assert server(read["url"], read["http_headers"]) in urls
    read = json.loads(await told(fleet, "mcp-config", "health", "--for", "claude-desktop"))["mcpServers"]["health"]
    assert (read["command"], read["args"][:2]) == ("npx", ["-y", "mcp-remote"])
    [header] = [one for one in read["args"] if one.startswith("Authorization:")]
    [(variable, value)] = read["env"].items()
    assert header == f"Authorization:${{{variable}}}"
    assert server(read["args"][2], {"Authorization": value}) in urls


async def test_what_the_fleet_logged_can_be_read(fleet: Fleet) -> None:
    folder = fleet.house.settings.home / "logs"
    assert {path.stat().st_mode & 0o077 for path in (folder, *folder.iterdir())} == {0}
    lines = [json.loads(line) for line in (await told(fleet, "logs", "--json", "-n", "100000")).splitlines()]
    assert lines == sorted(lines, key=lambda line: str(line["at"]))
    if lines:
        last = lines[-1]
        shown = (await told(fleet, "logs", "--lines", "1")).splitlines()
        assert len(shown) == 1
        only = await told(fleet, "logs", "--daemon", str(last["daemon"]), "--json")
        assert {json.loads(line)["daemon"] for line in only.splitlines()} == {last["daemon"]}


async def test_the_log_is_followed_until_ctrl_c(fleet: Fleet) -> None:
    words, path = fresh.words("followed"), fleet.house.settings.home / "logs" / "other.jsonl"
    process = fleet.house.spawn(("logs", "--follow", "--lines", "100000"), "follow")
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": "2026-11-25T13:52:00Z", "event": words}) + "\n")
        await until(lambda: process.out.exists() and process.out.read_text().count(words) == 1)
    finally:
        path.unlink()
        process.send(signal.SIGINT)
    assert (await process.wait(), process.err.read_text()) == (130, "")
