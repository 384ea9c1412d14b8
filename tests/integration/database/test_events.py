"""Every transition of a pending action has its line in the audit, with who and why, and no line is without one."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from uuid import uuid4

import pytest
import pytest_asyncio

from shared.db.pool import Record
from shared.gate import owner_decision
from shared.rpc import Answer
from shared.storage import brakes, contacts, pending_actions
from shared.storage.brakes import Scope
from shared.storage.pending_actions import Why
from tests.integration.house import MOVED_WITHOUT_A_LINE, House
from tests.integration.workers import new_chat
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

# What really happened, kept by the database itself.
WATCH = """
CREATE TABLE shared.moves_seen (n bigserial, action_id uuid, status text, revision integer);
CREATE FUNCTION shared.see_move() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    IF TG_OP = 'INSERT' OR (OLD.status, OLD.revision) IS DISTINCT FROM (NEW.status, NEW.revision) THEN
        INSERT INTO shared.moves_seen (action_id, status, revision) VALUES (NEW.id, NEW.status, NEW.revision);
    END IF;
    RETURN NULL; END $$;
CREATE TRIGGER seen AFTER INSERT OR UPDATE ON shared.pending_actions
    FOR EACH ROW EXECUTE FUNCTION shared.see_move();
"""
SEEN = "SELECT status, revision FROM shared.moves_seen WHERE action_id = $1 ORDER BY n"
LINES = """
SELECT event_type, (detail ->> 'revision')::integer AS revision, actor, reason, detail ->> 'surface' AS surface, rule_id
FROM shared.approval_events WHERE action_id = $1 ORDER BY seq
"""
ALL = "SELECT id::text, status FROM shared.pending_actions ORDER BY requested_at"
# The state that a line leaves its action in, where that has another name.
LEAVES = dict.fromkeys(("parked", "revised", "edited", "identifier_added"), "pending")
TOO_LATE = "UPDATE shared.pending_actions SET expires_at = clock_timestamp() WHERE id = $1"
MOVE_AWAY = "UPDATE shared.contact_info SET value = $2 WHERE contact_id = $1 AND type = 'telegram'"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(house: House) -> AsyncIterator[House]:
    """The module's house, whose every move is seen from below."""
    await house.sql.execute(WATCH)
    yield house


async def parked(house: House, message: str, **more: object) -> Answer:
    contact = more.pop("contact_id", None) or await house.contact("Zoe", telegram=new_chat())
    return await house.notify(message=message, contact_id=contact, **more)


async def short(house: House, message: str) -> tuple[Answer, str]:
    """An answer about somebody without a Telegram identifier, and the contact."""
    contact = await house.contact("Bo", email=f"{uuid4().hex}@example.org")
    return await house.notify(message=message, contact_id=contact), contact


async def approved(house: House, message: str) -> str:
    answer = await parked(house, message)
    assert (await house.decide(answer["action_id"])).code == "approved"
    await house.settled(answer["notification_id"], "ok")
    return str(answer["action_id"])


async def denied(house: House, message: str) -> str:
    answer = await parked(house, message)
    assert (await house.decide(answer["action_id"], approve=False, reason="Not now.")).code == "denied"
    return str(answer["action_id"])


async def expired(house: House, message: str) -> str:
    answer = await parked(house, message)
    await house.sql.execute(TOO_LATE, answer["action_id"])
    await house.settled(answer["notification_id"], "error")
    return str(answer["action_id"])


async def withdrawn(house: House, message: str) -> str:
    answer = await parked(house, message)
    asked = {"notification_id": answer["notification_id"]}
    await house.assembly.local["greeter"].call(house.tokens["greeter"], "withdraw", asked)
    await house.settled(answer["notification_id"], "error")
    return str(answer["action_id"])


async def failed(house: House, message: str) -> str:
    answer = await parked(house, message)
    await until(lambda: house.cards(message))  # else the card, which holds the same words, would meet the fault
    await house.fault(message, "400", times=1)
    await house.decide(answer["action_id"])
    await house.settled(answer["notification_id"], "error")
    return str(answer["action_id"])


async def uncertain(house: House, message: str) -> str:
    answer = await parked(house, message)
    await until(lambda: house.cards(message))
    await house.fault(message, "accept_reset", times=1)
    await house.decide(answer["action_id"])
    await house.settled(answer["notification_id"], "uncertain")
    return str(answer["action_id"])


async def released(house: House, message: str) -> str:
    answer, contact = await short(house, message)
    await house.rule({"contact_id": contact})
    await contacts.add_address(house.sql, contact, "telegram", new_chat())
    await house.settled(answer["action_id"], "ok")
    return str(answer["action_id"])


async def forbidden(house: House, message: str) -> str:
    answer, contact = await short(house, message)
    await house.rule({"contact_id": contact}, effect="deny")
    await contacts.add_address(house.sql, contact, "telegram", new_chat())
    await house.settled(answer["action_id"], "error")
    return str(answer["action_id"])


async def identified(house: House, message: str) -> str:
    answer, contact = await short(house, message)
    await contacts.add_address(house.sql, contact, "telegram", new_chat())
    await house.settled(answer["action_id"], "pending_approval")
    return str(answer["action_id"])


async def revised(house: House, message: str) -> str:
    contact = await house.contact("Moving", telegram=new_chat())
    answer = await parked(house, message, contact_id=contact)
    await house.sql.execute(MOVE_AWAY, contact, new_chat())
    assert (await house.decide(answer["action_id"])).code == "changed"
    assert (await house.decide(answer["action_id"])).code == "approved"
    await house.settled(answer["notification_id"], "ok")
    return str(answer["action_id"])


async def asked_again_at_the_marker(house: House, message: str) -> str:
    contact = await house.contact("Late mover", telegram=new_chat())
    answer = await parked(house, message, contact_id=contact)
    owner = await contacts.owner(house.sql)
    assert owner is not None
    scope = Scope(contact_id=contact)
    await brakes.put_on(house.sql, scope, owner["id"])
    assert (await house.decide(answer["action_id"])).code == "approved"
    await house.sql.execute(MOVE_AWAY, contact, new_chat())
    await brakes.lift(house.sql, scope, owner["id"])
    await house.settled(answer["notification_id"], "pending_approval")
    return str(answer["action_id"])


async def edited(house: House, message: str) -> str:
    answer = await parked(house, message)
    owner = await contacts.owner(house.sql)
    assert owner is not None
    async with house.context("messenger").db.work() as connection:
        change = owner_decision.Edit(
            str(answer["action_id"]), f"{message} edited", owner["id"], "test", timedelta(hours=72)
        )
        assert (await owner_decision.edit(connection, change)).code == "edited"
    assert (await house.decide(answer["action_id"])).code == "approved"
    await house.settled(answer["notification_id"], "ok")
    return str(answer["action_id"])


WAYS = {
    approved: ["parked", "approved", "executing", "executed"],
    denied: ["parked", "denied"],
    expired: ["parked", "expired"],
    withdrawn: ["parked", "cancelled"],
    failed: ["parked", "approved", "executing", "failed"],
    uncertain: ["parked", "approved", "executing", "uncertain"],
    released: ["parked", "approved", "executing", "executed"],
    forbidden: ["parked", "cancelled"],
    identified: ["parked", "identifier_added"],
    revised: ["parked", "revised", "approved", "executing", "executed"],
    asked_again_at_the_marker: ["parked", "approved", "revised"],
    edited: ["parked", "edited", "approved", "executing", "executed"],
}


async def lines_of(house: House, action: str) -> Sequence[Record]:
    return await house.sql.fetch(LINES, action)


async def test_each_way_of_an_action_stands_in_the_audit_step_by_step(watched: House, message: str) -> None:
    ways = list(WAYS)
    actions = [await way(watched, f"{message} {way.__name__}") for way in ways]
    told = {way: await lines_of(watched, action) for way, action in zip(ways, actions, strict=True)}
    assert {way.__name__: [line["event_type"] for line in lines] for way, lines in told.items()} == {
        way.__name__: expected for way, expected in WAYS.items()
    }
    for row in await watched.sql.fetch(ALL):
        lines = await lines_of(watched, row["id"])
        moves = [tuple(move) for move in await watched.sql.fetch(SEEN, row["id"])]
        assert [(LEAVES.get(line["event_type"], line["event_type"]), line["revision"]) for line in lines] == moves
        for line in lines:
            assert line["actor"]
            assert line["reason"] or line["surface"], tuple(line)
    [rule_line] = [line for line in told[released] if line["event_type"] == "approved"]
    assert (rule_line["actor"], rule_line["rule_id"] is not None) == ("messenger", True)
    assert [(line["actor"], line["surface"]) for line in told[edited]][1] == ("owner", "test")
    assert [line["actor"] for line in told[withdrawn]] == ["greeter", "greeter"]


async def test_the_last_line_of_every_action_is_its_state(watched: House, message: str) -> None:
    answer = await parked(watched, message)
    await approved(watched, f"{message} approved")
    assert await watched.sql.fetch(MOVED_WITHOUT_A_LINE) == []
    # The check itself sees a move without a line.
    transaction = watched.sql.transaction()
    await transaction.start()
    await watched.sql.execute(
        "UPDATE shared.pending_actions SET status = 'cancelled' WHERE id = $1", answer["action_id"]
    )
    assert [str(row["id"]) for row in await watched.sql.fetch(MOVED_WITHOUT_A_LINE)] == [answer["action_id"]]
    await transaction.rollback()


async def test_a_move_that_moves_nothing_writes_no_line(watched: House, message: str) -> None:
    answer = await parked(watched, message)
    told, action = str(answer["notification_id"]), str(answer["action_id"])
    why = Why("messenger", "It was tried.")
    async with watched.context("messenger").db.work() as connection:
        assert await pending_actions.move(connection, told, ["approved"], "executing", why) is None
        assert await pending_actions.move(connection, told, ["pending"], "pending", why) is None
        assert not await pending_actions.expire(connection, action, why)
        assert not await pending_actions.let_go(connection, action, 7, why)
    assert [line["event_type"] for line in await lines_of(watched, action)] == ["parked"]
