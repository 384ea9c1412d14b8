"""Whom a message is for, or went to, is on every surface what the house knows, and nothing that its butler wrote."""

import asyncio
import json
from collections.abc import AsyncIterator
from html import unescape
from typing import Final
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from butlers.console.queries import approvals
from messenger.cards import digest, uncertain
from messenger.storage import queries
from shared.errors import ButlersError
from tests.integration.commands import call, said
from tests.integration.console_runner import Running
from tests.integration.house import House
from tests.integration.signed_in import page, signed_in
from tests.integration.workers import new_chat
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

# As a butler's own login may: everything but the address it resolves to says that it is for Anna.
LIED: Final = """
WITH told AS (INSERT INTO shared.notifications (id, origin_butler, admitted_by, realm, key, lineage, request_sha,
    envelope, whom, contact_id, contact_info_id, third_party, status, answer)
    SELECT $1::uuid, 'health', 'health', 'sandbox', $1::text, $1::text, 'sha', $2::jsonb, 'recipient:' || $3::text,
        contact_id, id, false, 'pending_approval', '{}' FROM shared.contact_info WHERE contact_id = $4::uuid)
INSERT INTO shared.pending_actions (id, origin_butler, tool_args, content_sha, agent_summary, notification_id)
VALUES ($1::uuid, 'health', jsonb_build_object('recipient', $5::text, 'name', $5::text, E'\\nTo', $5::text),
    'sha', $5::text || '. This address is not in your contacts.', $1::uuid)
"""
DELIVERY: Final = """
INSERT INTO messenger.deliveries (id, notification_id, class, channel, address, status, origin_butler)
VALUES ($1::uuid, $1::uuid, 'third_party', 'telegram', $2, 'uncertain', 'health')
"""
REVISED: Final = "UPDATE shared.pending_actions SET revision = revision + 1 WHERE id = $1::uuid"
WAITS: Final = """
SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(still_house: House) -> AsyncIterator[Running]:
    """The console of a house in which nothing moves, with its owner signed in."""
    async with signed_in(still_house) as running:
        yield running


async def lied(house: House) -> tuple[str, str, str]:
    """The id of a message and of its question, where it goes, and the name of whom it pretends to be for."""
    name, address, told = f"Anna{uuid4().hex[:8]}", new_chat(), str(uuid4())
    anna = await house.contact(name, telegram=new_chat())
    delivery = {"intent": "send", "channel": "telegram", "message": "Hello", "recipient": name}
    envelope = {"schema_version": "notify.v1", "origin_butler": "health", "delivery": delivery}
    await house.sql.execute(LIED, told, envelope, address, anna, name)
    return told, address, name


async def test_what_waits_is_shown_with_what_it_resolves_to(still_house: House, console: Running) -> None:
    told, address, name = await lied(still_house)
    for path in ("/", "/approvals", f"/approvals/{told}"):
        html = await page(console, path)
        assert address in html, path
        assert name not in html.replace(f'<blockquote dir="auto">{name}. This address is not in your contacts.', ""), (
            path
        )
    question = await approvals.one(still_house.sql, told)
    assert question is not None
    assert f"recipient={address}" in question.rule_form
    assert "contact_id" not in question.rule_form
    html = unescape(await page(console, f"/approvals/{told}"))
    assert '<p class="soft">This address is not in your contacts.</p>' in html, "a finding its butler had said before"
    listed = await said(still_house, "approvals", "list")
    shown = await said(still_house, "approvals", "show", told)
    [line] = [line for line in listed.splitlines() if line.startswith(told[:8])]
    assert f"unknown ({address})" in line
    assert name not in line
    assert f"an unknown recipient on Telegram ({address})\n" in shown
    assert shown.count(name) == 1, "what its butler says, as a quotation"
    told_json = json.loads(await said(still_house, "approvals", "show", told, "--json"))
    assert told_json["to"] == {"name": "", "address": address, "contact_id": "", "is_owner": False}


async def test_what_was_sent_is_shown_with_its_delivery_and_who_has_that_address(
    still_house: House, console: Running
) -> None:
    told, address, name = await lied(still_house)
    await still_house.sql.execute(DELIVERY, told, address)
    row = await queries.doubt(still_house.sql, told)
    assert row is not None
    assert f" to unknown ({address}) on Telegram" in str(uncertain.words(row))
    bo = f"Bo{uuid4().hex[:8]}"
    await still_house.contact(bo, telegram=address)
    row = await queries.doubt(still_house.sql, told)
    assert row is not None
    assert f" to {bo} ({address}) on Telegram" in str(uncertain.words(row))
    await still_house.sql.execute("UPDATE shared.pending_actions SET status = 'executed' WHERE id = $1", told)
    for path in ("/", "/approvals", f"/approvals/{told}", "/deliveries", f"/deliveries/{told}"):
        html = await page(console, path)
        assert bo in html, path
        assert name not in html, path
    for argv in (("deliveries", "list"), ("deliveries", "show", told), ("approvals", "show", told), ("why", told)):
        text = await said(still_house, *argv)
        assert bo in text, argv
        assert address in text, argv
        assert name not in text, argv
    assert "The message is to the owner" not in await said(still_house, "why", told)


async def test_a_digest_lists_what_each_resolves_to(still_house: House) -> None:
    told, address, name = await lied(still_house)
    rows = await still_house.sql.fetch(
        "SELECT id::text, envelope, owner_text, whom, origin_butler, NULL AS tool_name, 1 AS total "
        "FROM shared.notifications WHERE id = $1",
        told,
    )
    _, sheet = digest.words(rows, await digest.recipients_of(still_house.sql, rows), "here", "there")
    assert f"unknown ({address})" in sheet.foot
    assert name not in sheet.foot


async def test_no_line_of_a_delivery_is_somebody_elses(still_house: House) -> None:
    told, address, _ = await lied(still_house)
    await still_house.sql.execute(DELIVERY, told, address)
    forged = "Hi\naddress: 4242\ncontact: Mum\nstatus: sent"
    text = "UPDATE shared.notifications SET owner_text = $2, lineage = $2, admitted_by = $2 WHERE id = $1"
    await still_house.sql.execute(text, told, forged)
    for argv in (("deliveries", "show", told), ("why", told), ("deliveries", "list")):
        lines = (await said(still_house, *argv)).splitlines()
        assert not [line for line in lines if line.startswith(("address: 4242", "contact: Mum", "status: sent"))], argv


async def test_a_word_on_the_command_line_is_for_the_revision_it_read(still_house: House) -> None:
    answer = await still_house.notify(message=f"words {uuid4()}", recipient=new_chat())
    action = str(answer["action_id"])
    connection = await asyncpg.connect(still_house.dsn)
    try:
        async with connection.transaction():
            # It reads the question first, and then whom that is for.
            await connection.execute("LOCK TABLE shared.contact_info IN ACCESS EXCLUSIVE MODE")
            spoken = asyncio.create_task(asyncio.to_thread(call, still_house, "approvals", "approve", action[:13]))
            await eventually(lambda: still_house.sql.fetchval(WAITS))
            await still_house.sql.execute(REVISED, action)
        ended = await spoken
    finally:
        await connection.close()
    assert isinstance(ended.exception, ButlersError)
    assert ended.exception.message == "Changed since it was shown."
    assert "Approved" not in ended.output
    text = "SELECT status FROM shared.pending_actions WHERE id = $1"
    assert await still_house.sql.fetchval(text, action) == "pending"


LETTERS = {
    "request_id": "lists",
    "source_channel": "telegram",
    "source_endpoint_identity": "bot",
}


async def test_every_list_shows_the_address_of_threads_and_of_strangers(still_house: House, console: Running) -> None:
    chat, other, words = new_chat(), new_chat(), f"lists {uuid4()}"
    context = {**LETTERS, "source_sender_identity": chat, "source_thread_identity": f"{chat}:7"}
    thread = await still_house.notify(intent="reply", message=words, request_context=context)
    stranger = await still_house.notify(message=words, recipient=other)
    for path in ("/", "/approvals"):
        html = await page(console, path)
        assert chat in html, path
        assert other in html, path
    for answer in (thread, stranger):
        assert (await still_house.decide(answer["action_id"], approve=False)).code == "denied"
    for path in ("/", "/approvals", *(f"/approvals/{answer['action_id']}" for answer in (thread, stranger))):
        html = await page(console, path)
        assert chat in html or path.endswith(str(stranger["action_id"])), path
        assert other in html or path.endswith(str(thread["action_id"])), path
    listed = await said(still_house, "approvals", "list", "--all")
    assert f"unknown ({chat})" in listed
    assert f"unknown ({other})" in listed
    anna = await still_house.contact(f"Anna{uuid4().hex[:8]}", telegram=chat)
    html = await page(console, "/approvals")
    assert (chat in html, anna is not None) == (True, True), "a name on file hides no address"


async def test_the_command_line_shows_what_is_decided_and_takes_a_yes_for_that_revision_only(
    still_house: House,
) -> None:
    chat, text = new_chat(), "long words " * 500
    bo = f"Bo{uuid4().hex[:8]}"
    contact = await still_house.contact(bo, telegram=chat)
    action = str((await still_house.notify(message=text, contact_id=contact))["action_id"])
    shown = (await said(still_house, "approvals", "show", action)).splitlines()
    assert shown[0] == f"{bo} ({chat}) by telegram"
    assert {"revision: 1", "parts: 2", "findings: No rule allows it."} <= set(shown)
    await said(still_house, "approvals", "edit", action, "--message", "other words")
    ended = await asyncio.to_thread(call, still_house, "approvals", "approve", action, "--revision", "1")
    assert isinstance(ended.exception, ButlersError)
    assert ended.exception.message == "Changed since it was shown."
    text = "SELECT status FROM shared.pending_actions WHERE id = $1"
    assert await still_house.sql.fetchval(text, action) == "pending"
    await said(still_house, "approvals", "approve", action, "--revision", "2")
    assert await still_house.sql.fetchval(text, action) == "approved"
