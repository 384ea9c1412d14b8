"""What has left in part: nobody gets the rest alone or in other words, and nobody is told that nothing left."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

import pytest

from messenger.cards.approval import HAD_ARRIVED
from messenger.channels.base import Channel, Prepared, Receipt, SendFailed, StillHeld, unconditionally
from messenger.delivery import loop
from messenger.maintenance import reaper, resolver
from messenger.storage import attempts, deliveries, transitions
from shared import answers
from shared.channels.base import Wire
from shared.config.timings import STANDARD
from shared.errors import InvalidInput
from shared.gate.owner_decision import Edit, edit
from shared.storage import contacts
from tests.integration.delivery.test_late_receipts import Late, late_desk
from tests.integration.doubts import RECEIPTS, all_cards, answer, cards_written, closed, say, shown
from tests.integration.house import House
from tests.integration.sandbox_runner import OWNER as THE_OWNER
from tests.integration.workers import (
    ACTION,
    admitted,
    due,
    enqueue,
    in_queue,
    lose_lease,
    new_chat,
    reap,
    work,
    worker_where,
)
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = "\n".join(f"line {n} of a text that is longer than one message may be" for n in range(80))
MOVE = "UPDATE shared.contact_info SET value = $2 WHERE contact_id = $1 AND type = 'telegram'"
REVOKE = "UPDATE shared.approval_rules SET active = false WHERE id = $1"
WORDS = "UPDATE shared.notifications SET owner_text = $2 WHERE id = $1"
NOBODY = "UPDATE shared.pending_actions SET expires_at = clock_timestamp() WHERE notification_id = $1"
OLDER = "UPDATE messenger.deliveries SET settled_at = settled_at - interval '11 seconds' WHERE notification_id = $1"
RECEIPT_BEFORE = """
INSERT INTO messenger.attempts (delivery_id, n, attempt, marked_at, ended_at, outcome)
VALUES ($1, 1, 0, clock_timestamp(), clock_timestamp(), 'sent')
"""
OWNER = "SELECT id FROM shared.contacts WHERE 'owner' = ANY (roles)"


def in_two(message: str) -> str:
    """A text that makes two messages."""
    return f"first {message}\n{LONG}\nlast {message}"


def at_second(does: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[None]]:
    """Does it before the marker of the second part."""
    calls = [0]

    async def happens() -> None:
        calls[0] += 1
        if calls[0] == 2:
            await does()

    return happens


async def known(house: House) -> tuple[str, str]:
    """A contact with a chat of its own, and the rule by which somebody may write there."""
    anna = await house.contact("Anna", telegram=new_chat())
    return anna, await house.rule({"contact_id": anna})


async def carried(house: House, told: str) -> None:
    """What is left to its lease is taken over and carried on, as often as there may be need."""
    for _ in range(3):
        await lose_lease(house, told)
        await reap(house)
        await due(house, told)
        await work(house.worker())


async def half_parked(house: House, message: str) -> str:
    """A notification that waits for the owner after its first part."""
    anna, rule = await known(house)
    told = await in_queue(house, in_two(message), contact_id=anna)
    await work(worker_where(house, at_second(lambda: house.sql.execute(REVOKE, rule))))
    assert await house.status(told) == "pending_approval"
    assert len(house.sent(f"first {message}")) == 1
    return told


async def change(house: House, told: str, text: str) -> str:
    """The owner's text in its place; what came of that."""
    action = await house.row(ACTION, told)
    async with house.context("messenger").db.work() as connection:
        owner = await contacts.owner(connection)
        assert owner is not None
        return (await edit(connection, Edit(action["id"], text, owner["id"], "test", timedelta(hours=72)))).code


async def ended_in_words(house: House, told: str, message: str) -> None:
    """It is over, says that something left, and no more of it has."""
    found = await answer(house, told)
    assert found["status"] == "error", found
    assert answers.EARLIER in found["error"]["message"]  # type: ignore[index]
    assert "not sent" not in found["error"]["message"]  # type: ignore[index]
    assert found["error"]["retryable"] is False  # type: ignore[index]
    assert [line for line in house.sent(f"last {message}") if line["to"] != str(THE_OWNER)] == []


async def test_what_follows_a_part_goes_to_no_other_address(still_house: House, message: str) -> None:
    anna, _ = await known(still_house)
    told = await in_queue(still_house, in_two(message), contact_id=anna)
    await work(worker_where(still_house, at_second(lambda: still_house.sql.execute(MOVE, anna, new_chat()))))
    await carried(still_house, told)
    assert (await still_house.delivery(told))["status"] == "failed"
    await ended_in_words(still_house, told, message)


async def test_nobody_is_asked_whether_the_rest_may_go_to_another_address(still_house: House, message: str) -> None:
    anna, rule = await known(still_house)
    told = await in_queue(still_house, in_two(message), contact_id=anna)

    async def moved_and_revoked() -> None:
        await still_house.sql.execute(MOVE, anna, new_chat())
        await still_house.sql.execute(REVOKE, rule)

    await work(worker_where(still_house, at_second(moved_and_revoked)))
    await ended_in_words(still_house, told, message)
    assert await still_house.sql.fetchrow(ACTION, told) is None


async def test_what_waited_after_a_part_goes_to_no_other_address(still_house: House, message: str) -> None:
    told, chat = await half_parked(still_house, message), new_chat()
    action = await still_house.row(ACTION, told)
    await still_house.sql.execute(MOVE, action["tool_args"]["contact_id"], chat)
    while (await still_house.decide(action["id"])).code != "approved":
        pass
    await enqueue(still_house, told)
    assert (await still_house.delivery(told))["address"] == chat
    await carried(still_house, told)
    await ended_in_words(still_house, told, message)
    assert (await still_house.row(ACTION, told))["status"] == "failed"


async def test_a_card_begins_anew_where_the_owner_is_by_now(still_house: House, message: str) -> None:
    await cards_written(still_house)
    await all_cards(still_house)
    told = await admitted(still_house, in_two(message), contact_id=await still_house.contact("Cleo"))
    await cards_written(still_house)
    owner, chat = str((await still_house.row(OWNER))["id"]), new_chat()
    here = partial(contacts.add_address, still_house.sql, owner, "telegram", primary=True)
    moves = at_second(lambda: here(chat))
    while not still_house.sent(f"first {message}"):
        await work(worker_where(still_house, moves))
    await work(still_house.worker())
    await here(str(THE_OWNER))
    texts = [line for line in still_house.box.sandbox.lines if line["to"] == chat]
    assert [words in str(texts) for words in (f"first {message}", f"last {message}")] == [True, True]
    assert [("reply_markup" in str(line["payload"])) for line in texts] == [False, False, True]
    await still_house.decide((await still_house.row(ACTION, told))["id"], approve=False)


async def test_what_has_begun_keeps_its_words(still_house: House, message: str) -> None:
    told = await half_parked(still_house, message)
    with pytest.raises(InvalidInput, match=r"Part of it has already been sent\. Approve or deny it as it is\."):
        await change(still_house, told, f"short {message}")
    await still_house.decide((await still_house.row(ACTION, told))["id"])
    await enqueue(still_house, told)
    await work(still_house.worker())
    assert await still_house.status(told) == "ok"
    assert (len(still_house.sent(f"first {message}")), len(still_house.sent(f"last {message}"))) == (1, 1)


async def test_a_part_that_left_with_other_bytes_is_no_part_of_this(still_house: House, message: str) -> None:
    told = await half_parked(still_house, message)
    await still_house.sql.execute(WORDS, told, f"short {message}")
    action = await still_house.row(ACTION, told)
    while (await still_house.decide(action["id"])).code != "approved":
        pass
    await enqueue(still_house, told)
    await carried(still_house, told)
    assert (await still_house.delivery(told))["status"] == "failed"
    await ended_in_words(still_house, told, message)
    assert still_house.sent(f"short {message}") == []


async def test_a_part_that_its_text_has_no_more_is_forgotten(still_house: House, message: str) -> None:
    anna, rule = await known(still_house)
    told = await in_queue(still_house, in_two(message), contact_id=anna)
    await work(worker_where(still_house, lambda: still_house.sql.execute(REVOKE, rule)))
    assert await change(still_house, told, f"short {message}") == "edited"
    await still_house.decide((await still_house.row(ACTION, told))["id"])
    await enqueue(still_house, told)
    await still_house.fault(f"short {message}", "accept_reset", times=1)
    await work(still_house.worker())
    assert await say(still_house, told, "arrived") == "done"
    assert [row["status"] for row in await still_house.sql.fetch(RECEIPTS, told)] == ["sent"]
    assert await still_house.status(told) == "ok"


async def owners_second_chat(house: House) -> tuple[str, Callable[[], Awaitable[None]]]:
    """A chat of the owner's, and how it becomes that of somebody to whom a rule lets all go."""
    chat, owner = new_chat(), str((await house.row(OWNER))["id"])
    await contacts.add_address(house.sql, owner, "telegram", chat)

    async def given_away() -> None:
        anna, _ = await known(house)
        await contacts.remove_address(house.sql, owner, "telegram", chat)
        await contacts.add_address(house.sql, anna, "telegram", chat)

    return chat, given_away


async def repeated_by_machine(house: House, told: str) -> None:
    await house.sql.execute(OLDER, told)
    await resolver.repeat_to_owner(house.context("messenger"))


async def test_what_goes_to_somebody_else_by_now_is_repeated_by_no_machine(still_house: House, message: str) -> None:
    chat, given_away = await owners_second_chat(still_house)
    told = await admitted(still_house, message, recipient=chat)
    await enqueue(still_house, told)
    assert (await still_house.delivery(told))["class"] == "owner"
    await still_house.fault(message, "accept_reset", times=1)
    await given_away()
    await work(still_house.worker())
    await work(still_house.worker())
    row = await still_house.delivery(told)
    assert (row["class"], row["status"], row["content_sha"] is None) == ("third_party", "uncertain", False)
    await repeated_by_machine(still_house, told)
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 1


async def test_what_becomes_somebody_elses_before_its_marker_is_marked_as_theirs(
    still_house: House, message: str
) -> None:
    chat, given_away = await owners_second_chat(still_house)
    told = await admitted(still_house, message, recipient=chat)
    await enqueue(still_house, told)
    await work(worker_where(still_house, given_away))
    assert still_house.sent(message) == []
    await work(still_house.worker())
    row = await still_house.delivery(told)
    assert (row["class"], row["status"], row["content_sha"] is None) == ("third_party", "sent", False)


async def test_a_repeat_to_the_owner_goes_to_nobody_else(still_house: House, message: str) -> None:
    chat, given_away = await owners_second_chat(still_house)
    told = await admitted(still_house, message, recipient=chat)
    await enqueue(still_house, told)
    await still_house.fault(message, "accept_reset", times=1)
    await work(still_house.worker())
    await repeated_by_machine(still_house, told)
    assert await still_house.status(told) == "uncertain"
    await given_away()
    await carried(still_house, told)
    assert len(still_house.sent(message)) == 1
    await ended_in_words(still_house, told, message)


async def slow_and_lost(house: House, message: str, text: str = "") -> tuple[str, str, Late]:
    """A notification whose answer is on its way when its lease is lost, and the rule that let it go."""
    anna, rule = await known(house)
    told, late = await in_queue(house, text or message, contact_id=anna), late_desk(house)
    await loop.claim_some(late.worker)
    await until(lambda: house.sent(message))
    await lose_lease(house, told)
    assert await reap(house) == 1
    return told, rule, late


async def test_a_receipt_while_the_repeat_is_prepared_spares_it(still_house: House, message: str) -> None:
    told, _, first = await slow_and_lost(still_house, message)
    assert await say(still_house, told, "again") == "done"
    await work(worker_where(still_house, first.answered))
    assert len(still_house.sent(message)) == 1
    assert ((await still_house.delivery(told))["status"], await still_house.status(told)) == ("sent", "ok")


async def test_a_receipt_while_the_repeat_waits_for_the_owner_spares_it(still_house: House, message: str) -> None:
    told, rule, first = await slow_and_lost(still_house, message)
    await still_house.sql.execute(REVOKE, rule)
    assert await say(still_house, told, "again") == "done"
    await work(still_house.worker())
    await first.answered()
    assert ((await still_house.delivery(told))["status"], await still_house.status(told)) == ("sent", "ok")
    action = await still_house.row(ACTION, told)
    assert (action["status"], (await still_house.decide(action["id"])).code) == ("cancelled", "late")
    await work(still_house.worker())
    assert len(still_house.sent(message)) == 1


async def test_a_question_that_a_receipt_answers_says_so_on_its_card(still_house: House, message: str) -> None:
    told, rule, first = await slow_and_lost(still_house, message)
    await still_house.sql.execute(REVOKE, rule)
    assert await say(still_house, told, "again") == "done"
    await work(still_house.worker())
    await cards_written(still_house)
    await all_cards(still_house)
    [card] = still_house.cards(message)
    await first.answered()
    await closed(still_house)
    assert shown(still_house, card).endswith(HAD_ARRIVED)


async def test_a_receipt_after_the_no_changes_no_answer(still_house: House, message: str) -> None:
    told, rule, first = await slow_and_lost(still_house, message)
    await still_house.sql.execute(REVOKE, rule)
    assert await say(still_house, told, "again") == "done"
    await work(still_house.worker())
    await still_house.decide((await still_house.row(ACTION, told))["id"], approve=False)
    before = await answer(still_house, told)
    await first.answered()
    assert await answer(still_house, told) == before
    async with still_house.context("messenger").db.work() as connection:
        await transitions.close_answered(connection)
    assert ((await still_house.delivery(told))["status"], before["status"]) == ("cancelled", "error")
    assert (await still_house.row(ACTION, told))["status"] == "denied"


async def test_a_receipt_for_one_part_leaves_the_question_about_the_rest(still_house: House, message: str) -> None:
    told, rule, first = await slow_and_lost(still_house, message, in_two(message))
    await still_house.sql.execute(REVOKE, rule)
    assert await say(still_house, told, "again") == "done"
    await work(still_house.worker())
    await first.answered()
    assert ((await still_house.delivery(told))["status"], await still_house.status(told)) == (
        "parked",
        "pending_approval",
    )
    await still_house.decide((await still_house.row(ACTION, told))["id"])
    await enqueue(still_house, told)
    await work(still_house.worker())
    assert [len(still_house.sent(f"{which} {message}")) for which in ("first", "last")] == [1, 1]
    assert (await still_house.row(ACTION, told))["status"] == "executed"


async def test_no_marker_for_a_part_that_has_its_receipt(still_house: House, message: str) -> None:
    told = await in_queue(still_house, message)
    async with still_house.context("messenger").db.work() as connection:
        [claimed] = await deliveries.claim(connection, "test", {"telegram": 1}, STANDARD)
        await attempts.keep_parts(connection, claimed.id, ["sha"])
        await connection.execute(RECEIPT_BEFORE, claimed.id)
        assert await deliveries.mark(connection, claimed, (1, "sha"), STANDARD.lease, None) is None
    await still_house.sql.execute("DELETE FROM messenger.deliveries WHERE notification_id = $1", told)


async def test_a_refusal_of_its_second_part_says_that_the_first_has_left(still_house: House, message: str) -> None:
    anna, _ = await known(still_house)
    told = await in_queue(still_house, in_two(message), contact_id=anna)
    await still_house.fault(f"last {message}", "403", times=1)
    await work(still_house.worker())
    assert (await still_house.delivery(told))["status"] == "failed"
    await ended_in_words(still_house, told, message)


async def test_what_is_forbidden_between_two_parts_says_so(still_house: House, message: str) -> None:
    anna, _ = await known(still_house)
    told = await in_queue(still_house, in_two(message), contact_id=anna)
    forbid = at_second(lambda: still_house.rule({"contact_id": anna}, effect="deny"))
    await work(worker_where(still_house, forbid))
    assert (await still_house.delivery(told))["status"] == "refused"
    await ended_in_words(still_house, told, message)


async def test_what_nobody_answers_after_a_part_says_so(still_house: House, message: str) -> None:
    told = await half_parked(still_house, message)
    await still_house.sql.execute(NOBODY, told)
    async with still_house.context("messenger").db.work() as connection:
        assert await reaper.close_unanswered(connection) >= 1
    await ended_in_words(still_house, told, message)


async def test_a_no_after_a_part_says_so_everywhere(still_house: House, message: str) -> None:
    told = await half_parked(still_house, message)
    await cards_written(still_house)
    await all_cards(still_house)
    card = still_house.cards("(The text is above.)")[-1]
    said = await still_house.decide((await still_house.row(ACTION, told))["id"], approve=False)
    assert (said.code, said.text) == ("denied", "Denied. Part of it was sent before and may have arrived.")
    await ended_in_words(still_house, told, message)
    await closed(still_house)
    assert shown(still_house, card).endswith(said.text)


async def approved(house: House, message: str) -> str:
    """A notification that the owner let go, in the queue."""
    anna = await house.contact("Bea", telegram=new_chat())
    told = await admitted(house, message, contact_id=anna)
    await house.decide((await house.row(ACTION, told))["id"])
    await enqueue(house, told)
    return told


async def goes_on_under_its_yes(house: House, told: str) -> None:
    """It is on its way again, as the answer and the action say, and needs no other yes."""
    assert [await house.status(told), (await house.row(ACTION, told))["status"]] == ["queued", "executing"]
    await due(house, told)
    await work(house.worker())
    assert [await house.status(told), (await house.row(ACTION, told))["status"]] == ["ok", "executed"]


async def test_a_late_receipt_lets_the_rest_go_under_the_same_yes(still_house: House, message: str) -> None:
    told = await approved(still_house, in_two(message))
    late = late_desk(still_house)
    await loop.claim_some(late.worker)
    await until(lambda: still_house.sent(f"first {message}"))
    await lose_lease(still_house, told)
    assert await reap(still_house) == 1
    assert (await still_house.row(ACTION, told))["status"] == "uncertain"
    await late.answered()
    await goes_on_under_its_yes(still_house, told)
    assert len(still_house.sent(f"last {message}")) == 1


class Slow:
    """A way out whose provider refuses for now, after the lease was lost."""

    name = "telegram"

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self.meanwhile = meanwhile

    async def prepare(self, wire: Wire) -> "Prepared | SendFailed":
        return self

    async def finish(self, still_held: StillHeld = unconditionally) -> Receipt | SendFailed:
        await self.meanwhile()
        return SendFailed("rate_limited", "later", proved_not_sent=True)

    async def abandon(self) -> None:
        """Nothing was written."""

    async def probe(self) -> None:
        """It works."""

    async def close(self) -> None:
        """Nothing is open."""


async def test_a_late_proof_that_it_was_not_sent_lets_it_go_under_the_same_yes(
    still_house: House, message: str
) -> None:
    told = await approved(still_house, message)

    async def meanwhile() -> None:
        await lose_lease(still_house, told)
        assert await reap(still_house) == 1
        assert await still_house.status(told) == "uncertain"

    way: Channel = Slow(meanwhile)
    await work(still_house.worker(telegram=way))
    await goes_on_under_its_yes(still_house, told)
