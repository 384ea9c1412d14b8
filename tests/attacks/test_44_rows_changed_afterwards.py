"""Rows are changed after a yes or a marker, by whoever owns the database, so that another history stands there."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from shared.auth import keystore
from shared.db.dsn import dsn_as
from tests.rig import fresh
from tests.rig.bench import Bench
from tests.rig.drill import ACTION, ADD_RULE
from tests.rig.fleet import Fleet
from tests.rig.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

OF = "(SELECT id FROM shared.notifications WHERE envelope #>> '{delivery,message}' = $1)"
DELIVERY = f"(SELECT id FROM messenger.deliveries WHERE notification_id = {OF})"
SENT = f"SELECT true FROM messenger.deliveries WHERE notification_id = {OF} AND status = 'sent'"
OF_ITS_QUESTION = "SELECT id, notification_id FROM shared.pending_actions WHERE notification_id = " + OF
REVISED = f"UPDATE shared.pending_actions SET revision = revision + 1 WHERE notification_id = {OF}"
OWN_LINE = """
INSERT INTO shared.approval_events (event_type, action_id, notification_id, actor, detail)
VALUES ('revised', $1, $2, 'health', $3)
"""
BY_NAME = {
    "whom it went to": f"UPDATE messenger.deliveries SET address = 'eve@people.test' WHERE notification_id = {OF}",
    "what it said": f"""
        UPDATE shared.notifications SET envelope = jsonb_set(envelope, '{{delivery,subject}}', '"Another."')
        WHERE id = {OF}""",
    "in the owner's words": f"UPDATE shared.notifications SET owner_text = 'Never said.' WHERE id = {OF}",
    "its content's hash": f"UPDATE shared.notifications SET content_sha = repeat('0', 64) WHERE id = {OF}",
    "that of its delivery": f"""
        UPDATE messenger.deliveries SET content_sha = repeat('0', 64) WHERE notification_id = {OF}""",
    "which bytes left": f"UPDATE messenger.parts SET wire_sha = repeat('0', 64) WHERE delivery_id = {DELIVERY}",
}
OF_A_YES = {
    **BY_NAME,
    "what the yes was for": f"""
        UPDATE shared.pending_actions SET content_sha = repeat('0', 64) WHERE notification_id = {OF}""",
    "which bytes the yes was for": f"""
        UPDATE shared.pending_actions SET wire_shas = '{{x}}' WHERE notification_id = {OF}""",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alone(bench: Bench) -> AsyncIterator[Fleet]:
    """A fleet of this class alone: its history is not to be believed afterwards."""
    made = await Fleet.start(await bench.house(), "one")
    yield made
    await made.stop()


async def told(fleet: Fleet, *, by_rule: bool) -> str:
    """The words of a mail that left, by a rule or by a yes."""
    said = fresh.words("told")
    contact = await fleet.contact("Anna", email=fresh.address())
    if by_rule:
        await fleet.sql(ADD_RULE, {"contact_id": contact})
    await fleet.notify(channel="email", contact_id=contact, message=said)
    if not by_rule:
        action = await eventually(lambda: fleet.value(ACTION, said))
        assert (await fleet.house.butlers("approvals", "approve", str(action)))[0] == 0
    await eventually(lambda: fleet.value(SENT, said))
    return said


async def names_it(fleet: Fleet, said: str) -> bool:
    """Whether looking deep says that the rows of this message differ."""
    code, out, _ = await fleet.house.butlers("audit", "verify", "--deep")
    notification = str(await fleet.value(f"SELECT {OF}", said))
    return code == 1 and notification in out


async def test_a_house_that_nobody_changed_is_whole(alone: Fleet) -> None:
    await told(alone, by_rule=True)
    await told(alone, by_rule=False)
    code, out, err = await alone.house.butlers("audit", "verify", "--deep")
    assert code == 0, (out, err)


@pytest.mark.parametrize("what", BY_NAME)
async def test_of_a_message_that_a_rule_let_out(alone: Fleet, what: str) -> None:
    said = await told(alone, by_rule=True)
    await alone.sql(BY_NAME[what], said)
    assert await names_it(alone, said)


@pytest.mark.parametrize("what", OF_A_YES)
async def test_of_a_message_that_the_owner_allowed(alone: Fleet, what: str) -> None:
    said = await told(alone, by_rule=False)
    await alone.sql(OF_A_YES[what], said)
    assert await names_it(alone, said)


async def test_the_message_is_taken_away(alone: Fleet) -> None:
    said = await told(alone, by_rule=True)
    await alone.sql(f"DELETE FROM messenger.deliveries WHERE notification_id = {OF}", said)
    assert await names_it(alone, said)


@pytest.mark.parametrize("line", ['{"revision": "soon"}', '{"revision": 2}'])
async def test_of_a_message_about_which_its_butler_wrote_a_line_of_its_own(alone: Fleet, line: str) -> None:
    """What is appended stays: a line that stops the look would do so for ever."""
    said = await told(alone, by_rule=False)
    keys = keystore.read(alone.house.home, "health")
    connection = await asyncpg.connect(dsn_as(alone.house.dsn, "health", keys.password))
    try:
        [about] = await alone.sql(OF_ITS_QUESTION, said)
        await connection.execute(OWN_LINE, *about, line)
    finally:
        await connection.close()
    await alone.sql(REVISED, said)
    assert await names_it(alone, said)
