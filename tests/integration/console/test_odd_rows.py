"""Rows that no code of ours writes, but whoever holds a butler's login might: they spoil no page and no list."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import pytest
import pytest_asyncio
from starlette.routing import Route

from shared.errors import Unreadable
from tests.integration.commands import call, said
from tests.integration.console_runner import Running
from tests.integration.house import House
from tests.integration.signed_in import fields, page, plain, signed_in
from tests.integration.workers import new_chat

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOTIFICATION: Final = """
INSERT INTO shared.notifications (id, origin_butler, admitted_by, realm, key, lineage, request_sha, envelope, whom,
    contact_id, third_party, not_after, status, answer)
VALUES ($1::uuid, 'health', 'health', $2, $1::uuid::text, $1::uuid::text, 'sha', $3::text::jsonb, $4, $5, true,
    $6::text::timestamptz, $7, $8::text::jsonb)
"""
ACTION: Final = """
INSERT INTO shared.pending_actions (id, origin_butler, tool_name, tool_args, agent_summary, notification_id, expires_at)
VALUES ($1, 'health', $2, $3::text::jsonb, $4, $5, $6::text::timestamptz)
"""
EVENT: Final = """
INSERT INTO shared.approval_events (event_type, action_id, notification_id, actor, reason, detail)
VALUES ($1, $2, $3, $4, $5, $6::text::jsonb)
"""
DELIVERY: Final = """
INSERT INTO messenger.deliveries (notification_id, class, channel, address, status)
VALUES ($1, 'third_party', 'telegram', '4242', 'uncertain') RETURNING id::text
"""
NEAR: Final = """
INSERT INTO shared.pending_actions (id, origin_butler, tool_args, status) VALUES ($1, 'greeter', '{}', 'expired')
"""
MORE_THAN_CAN_BE_READ: Final = """
INSERT INTO shared.pending_actions (id, origin_butler, tool_args, status)
SELECT gen_random_uuid(), 'greeter', jsonb_build_object('x', repeat('x', 1000000)), 'expired'
FROM generate_series(1, 1000)
"""
SPAM: Final = """
INSERT INTO shared.approval_events (event_type, action_id, notification_id, actor, reason)
SELECT 'parked', $1, $2, $3, $4 || ' ' || n FROM generate_series(1, $5::int) n
"""
SEEN: Final = """
INSERT INTO switchboard.butlers (name, url, kind, last_seen_at)
VALUES ('odd ' || $1::text, 'http://' || $2::text, 'butler', $1::text::timestamptz)
"""
ROUTED: Final = """
INSERT INTO switchboard.routes (request_id, origin_butler, target_butler, tool, notification_id, status, at)
VALUES ('r', 'greeter', $2, $2, $3, $2, $1::text::timestamptz)
"""
CLEAR: Final = (
    "DELETE FROM messenger.deliveries",
    "DELETE FROM shared.pending_actions",
    "DELETE FROM shared.notifications",
)
# The newest, which are the test's own.
TABLES: Final = {
    "/contacts/{id}": "SELECT id::text FROM shared.contacts ORDER BY created_at DESC LIMIT 3",
    "/rules/{id}": "SELECT id::text FROM shared.approval_rules ORDER BY created_at DESC LIMIT 3",
    "/deliveries/{id}": "SELECT id::text FROM messenger.deliveries",
    "/questions/{id}": "SELECT id::text FROM shared.questions ORDER BY asked_at DESC LIMIT 3",
    "/butlers/{id}": "SELECT name AS id FROM switchboard.butlers WHERE name ~ '^[a-z]+$'",
}
STATUS: Final = "SELECT status FROM shared.pending_actions WHERE id = $1"

NUMBER: Final = "7" * 5000
DEEP: Final = "[" * 900 + "]" * 900
DEEPER: Final = "[" * 3000 + "]" * 3000
STRANGE: Final = "\x1b[2J\x01\u202egnp.exe\u2028</div><script>alert(1)</script>"
FAR: Final = "290000-01-01"


def envelope(**more: object) -> str:
    """A good one, with other fields of the delivery."""
    asked = {"channel": "telegram", "message": "Hello", "recipient": "4242", **more}
    return json.dumps({"schema_version": "notify.v1", "origin_butler": "health", "delivery": asked})


def only(more: str = "") -> str:
    """One with the origin that a constraint demands, and this text of JSON."""
    return f'{{"origin_butler":"health"{more}}}'


@dataclass(frozen=True, slots=True)
class Odd:
    """What somebody writes into the three tables; `readable` if it is a message all the same."""

    envelope: str = envelope()
    tool_args: str = "{}"
    answer: str = "{}"
    detail: str = "{}"
    whom: str = "recipient:4242"
    status: str = "pending_approval"
    expires_at: str = "2100-01-01"
    not_after: str | None = None
    words: str = ""
    readable: bool = True
    # What the lists show of what cannot be read, if it has words.
    text: str = ""
    # A time that keeps its row from being locked for a word on it; the table refuses it today.
    deniable: bool = True


ODD: Final = {
    "of a far year": Odd(expires_at=FAR),
    "without an end": Odd(expires_at="infinity"),
    "over before time began": Odd(expires_at="-infinity"),
    "of a year before ours": Odd(expires_at="4000-01-01 BC"),
    "sent until a far year": Odd(not_after=FAR, deniable=False),
    "sent for ever": Odd(not_after="infinity"),
    "no delivery": Odd(only(), readable=False),
    "a number for a delivery": Odd(only(',"delivery":7'), readable=False),
    "a delivery of nothing": Odd(only(',"delivery":{}'), readable=False),
    "a list for a message": Odd(only(',"delivery":{"channel":"telegram","message":[1]}'), readable=False),
    "an unknown channel": Odd(envelope(channel="pigeon"), readable=False, text="Hello"),
    "an unknown field": Odd(
        only(',"delivery":{"channel":"telegram","message":"xyz"},"m":1'), readable=False, text="xyz"
    ),
    "a long number": Odd(only(f',"delivery":{NUMBER}'), readable=False),
    "a number beyond all floats": Odd(only(f',"delivery":{NUMBER}.5'), readable=False),
    "nested deep": Odd(only(f',"delivery":{DEEP}'), readable=False),
    "nested deeper": Odd(only(f',"delivery":{DEEPER}'), readable=False),
    "a far number beside the message": Odd(
        only(
            f',"delivery":{{"channel":"telegram","message":"far"}},"request_context":{{"source_thread_identity":{NUMBER}}}'
        ),
        readable=False,
        text="far",
    ),
    "a thread that is a list": Odd(
        only(
            ',"delivery":{"intent":"reply","channel":"telegram","message":"x"},'
            '"request_context":{"source_thread_identity":[[1]]}'
        )
    ),
    "nobody named": Odd(whom="nobody"),
    "a contact that is none": Odd(whom="contact:zz"),
    "a strange recipient": Odd(whom=f"recipient:{STRANGE}"),
    "a thread without end": Odd(whom="thread:" + "9" * 5000),
    "control characters": Odd(envelope(message=STRANGE, subject=f"{STRANGE}\r\nBcc: x"), whom=STRANGE, words=STRANGE),
    "no address on file": Odd(only(), status="pending_missing_identifier", readable=False),
    "odd arguments": Odd(tool_args="[1]"),
    "long arguments": Odd(tool_args=NUMBER),
    "deep arguments": Odd(tool_args=DEEP),
    "an odd answer": Odd(answer="7"),
    "a long answer": Odd(answer=f'{{"error":{NUMBER}}}'),
    "a deep answer": Odd(answer=f'{{"error":{{"message":{DEEP}}}}}'),
    "an odd detail": Odd(detail="[]"),
    "a long detail": Odd(detail=f'{{"surface":{NUMBER}}}'),
    "a deep detail": Odd(detail=f'{{"surface":{DEEPER}}}'),
}


@dataclass(frozen=True, slots=True)
class Put:
    """The ids of what was put in."""

    action: str
    told: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(still_house: House) -> AsyncIterator[Running]:
    """The console of a house in which nothing moves, with its owner signed in."""
    async with signed_in(still_house) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def honest(still_house: House, message: str) -> AsyncIterator[Put]:
    """What an honest butler asks; all that waits is gone afterwards."""
    contact = await still_house.contact("Zoe", telegram=new_chat())
    answer = await still_house.notify(message=message, contact_id=contact)
    yield Put(str(answer["action_id"]), str(answer["notification_id"]))
    for statement in CLEAR:
        await still_house.sql.execute(statement)


async def put(house: House, odd: Odd) -> Put:
    """Write the odd rows as somebody who may write anything."""
    action, told = str(uuid4()), str(uuid4())
    contact = await house.contact("Quinn", email=f"{uuid4().hex}@example.org")
    asked = (odd.envelope, odd.whom, contact, odd.not_after, odd.status, odd.answer)
    await house.sql.execute(NOTIFICATION, told, "sandbox", *asked)
    kind = odd.words or "notify"
    await house.sql.execute(ACTION, action, kind, odd.tool_args, odd.words, told, odd.expires_at)
    await house.sql.execute(EVENT, odd.words or "parked", action, told, "health", odd.words, odd.detail)
    return Put(action, told)


# They lead elsewhere, or never end.
NO_PAGES: Final = {"/events", "/confirm", "/sign-in", "/desk/questions"}


async def pages(console: Running, *put: Put) -> dict[str, str]:
    """Every page of the console by its address, which must all be answered."""
    ids = {path: [row["id"] for row in await console.sql.fetch(text)] for path, text in TABLES.items()}
    ids["/approvals/{id}"] = [one.action for one in put]
    ids["/deliveries/{id}"] += [one.told for one in put]
    found = {}
    for route in console.app.routes:
        if isinstance(route, Route) and "GET" in (route.methods or ()) and route.path not in NO_PAGES:
            for one in ids.get(route.path, [""]):
                path = route.path.replace("{id}", one)
                found[path] = await page(console, path)
    return found


async def listed(house: House, *put: Put) -> str:
    """What every command that lists or shows prints."""
    lists = [("approvals", "list"), ("approvals", "list", "--json"), ("deliveries", "list"), ("brake", "status")]
    lists += [("rules", "list"), ("audit", "verify")]
    for one in put:
        lists += [("approvals", "show", one.action), ("approvals", "show", one.action, "--json")]
        lists += [("why", one.told), ("why", one.told, "--json")]
    return "\n".join([await said(house, *argv) for argv in lists])


async def decide(console: Running, action: str, word: str) -> None:
    """Press the button that says so on the action's page."""
    form = fields(await page(console, f"/approvals/{action}"))
    answer = await console.post(f"/approvals/{action}", word=word, csrf=form["csrf"], revision=form["revision"])
    assert answer.status == 303, plain(await answer.text())


async def status(console: Running, action: str) -> object:
    return await console.sql.fetchval(STATUS, action)


@pytest.mark.slow
async def test_odd_rows_spoil_no_page_and_no_decision(
    still_house: House, console: Running, honest: Put, message: str
) -> None:
    put_in = {name: await put(still_house, odd) for name, odd in ODD.items()}
    deliveries = {name: await still_house.sql.fetchval(DELIVERY, one.told) for name, one in put_in.items()}
    everything = (honest, *put_in.values())
    shown, lists = await pages(console, *everything), await listed(still_house, *everything)
    for path in ("/", "/approvals", f"/approvals/{honest.action}", f"/deliveries/{honest.told}"):
        assert message in shown[path], path
    assert message in lists
    assert "health asked for something that cannot be read." in lists
    for name in (name for name, odd in ODD.items() if not odd.readable):
        there = put_in[name]
        gone = ODD[name].text or f"What was asked cannot be read ({there.action})."
        assert all(gone in shown[path] for path in ("/", "/approvals")), name
        assert gone in lists, name
        for path in (f"/approvals/{there.action}", f"/deliveries/{there.told}", f"/deliveries/{deliveries[name]}"):
            assert "What was asked cannot be read" in shown[path], (name, path)
            assert "health" in plain(shown[path]), (name, path)
    for name, there in put_in.items():
        if ODD[name].deniable and 'value="deny"' in shown[f"/approvals/{there.action}"]:
            await decide(console, there.action, "deny")
            assert await status(console, there.action) == "denied", name
    await decide(console, honest.action, "approve")
    assert await status(console, honest.action) == "approved"
    await pages(console, *everything)


async def test_nobody_says_yes_to_what_cannot_be_read(still_house: House, console: Running, honest: Put) -> None:
    there = await put(still_house, ODD["no delivery"])
    html = await page(console, f"/approvals/{there.action}")
    assert [word for word in ("approve", "edit", "deny") if f'value="{word}"' in html] == ["deny"]
    form = fields(html)
    pressed = {"word": "approve", "csrf": form["csrf"], "revision": form["revision"]}
    answer = await console.post(f"/approvals/{there.action}", **pressed)
    assert (answer.status, "cannot be read" in await answer.text()) == (409, True)
    for argv in (("approve", there.action), ("edit", there.action, "--message", "x")):
        ended = await asyncio.to_thread(call, still_house, "approvals", *argv)
        assert isinstance(ended.exception, Unreadable), ended.exception
    assert "Denied" in await said(still_house, "approvals", "deny", there.action)
    assert await status(console, there.action) == "denied"
    assert await status(console, honest.action) == "pending"


@pytest.mark.slow
async def test_one_is_meant_by_its_id_and_none_of_the_others_is_read(still_house: House, honest: Put) -> None:
    action = honest.action
    near = f"{action[:-1]}{'0' if action[-1] != '0' else '1'}"
    await still_house.sql.execute(NEAR, near)
    several = await asyncio.to_thread(call, still_house, "approvals", "show", action[:8])
    assert str(several.exception).startswith(f"The ids of several approvals begin with `{action[:8]}`.")
    await still_house.sql.execute("DELETE FROM shared.pending_actions WHERE id = $1", near)
    for none in (f"{action[:8]}g", action.replace("-", ""), f"{action}0"):
        ended = await asyncio.to_thread(call, still_house, "approvals", "deny", none)
        assert str(ended.exception).startswith(f"No approval matches the id `{none}`."), none
    await still_house.sql.execute(MORE_THAN_CAN_BE_READ)
    database = await still_house.sql.fetchval("SELECT current_database()")
    times = f"ALTER ROLE {database}_owner IN DATABASE {database} SET statement_timeout ="
    await still_house.sql.execute(f"{times} '1s'")
    try:
        assert action in await said(still_house, "approvals", "show", action[:8])
        assert "Denied" in await said(still_house, "approvals", "deny", action[:8])
    finally:
        await still_house.sql.execute(f"{times} '20s'")


async def test_an_odd_question_keeps_no_other_from_its_address(
    still_house: House, console: Running, message: str
) -> None:
    contact = await still_house.contact("Yves", email=f"{uuid4().hex}@example.org")
    asked = await still_house.notify(message=message, contact_id=contact)
    assert asked["status"] == "pending_missing_identifier"
    for one in (only(), only(',"delivery":{"channel":"telegram","message":1}'), envelope(channel="pigeon"), envelope()):
        there = await put(still_house, Odd(one, status="pending_missing_identifier"))
        await still_house.sql.execute(
            "UPDATE shared.notifications SET whom = 'contact:' || $1 WHERE id = $2", contact, there.told
        )
    html = await page(console, f"/contacts/{contact}")
    form = {name: value for name, value in fields(html).items() if name in {"csrf", "shown"}}
    assert message in html
    assert form["shown"].startswith(str(asked["action_id"]))
    answer = await console.post(f"/contacts/{contact}", do="send", type="telegram", value=new_chat(), **form)
    assert answer.status == 303, plain(await answer.text())
    assert await status(console, str(asked["action_id"])) == "approved"


async def test_many_lines_of_a_butler_hide_no_line_of_others(still_house: House, console: Running, honest: Put) -> None:
    spam = (honest.action, honest.told, "greeter")
    await still_house.sql.execute(SPAM, *spam, "before", 250)
    await decide(console, honest.action, "approve")
    await still_house.sql.execute(SPAM, *spam, "after", 250)
    for path in (f"/approvals/{honest.action}", f"/deliveries/{honest.told}"):
        html = plain(await page(console, path))
        assert "301 older lines are not shown" in html
        assert "You approved" in html
        lines = [int(n) for n in re.findall(r"\bafter (\d{1,3})\b", html)]
        assert lines == list(range(51, 251))
    told = await said(still_house, "why", honest.told)
    assert "301 older lines are not shown" in told
    assert "approved it" in told
    assert "after 250" in told
    assert "before" not in told


async def test_the_answer_that_a_butler_wrote_itself_is_quoted(still_house: House, console: Running) -> None:
    envelope = '{"schema_version": "notify.v1", "origin_butler": "health", "delivery": {"channel": "telegram"}}'
    for status, answer, paths in (
        ("pending_approval", '{"message": "Sign in again."}', ("/deliveries/{told}",)),
        ("error", '{"error": {"class": "forbidden", "message": "Sign in again."}}', ("/deliveries/{told}", "/")),
    ):
        told = str(uuid4())
        await still_house.sql.execute(NOTIFICATION, told, "sandbox", envelope, "owner", None, None, status, answer)
        for path in paths:
            assert 'Answer to health: "Sign in again."' in plain(await page(console, path.format(told=told)))


async def test_odd_rows_of_a_switchboard_spoil_nothing(still_house: House, console: Running, honest: Put) -> None:
    for seen in ("infinity", "290000-01-01"):
        await still_house.sql.execute(SEEN, seen, STRANGE)
        await still_house.sql.execute(ROUTED, seen, STRANGE, honest.told)
    assert "http://" in plain((await pages(console, honest))["/"])
    assert "The Switchboard routed it to" in await said(still_house, "why", honest.told)
    await still_house.sql.execute("DELETE FROM switchboard.butlers")
