"""The moments in which a bug must show, each brought about on a small fleet; and which bugs show in which.

The bugs are those of tests/planted; several of them are the same evil done in different ways.
"""

import asyncio
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.directed import FIRST_CHAT, PAST_THE_LEASE, Scenario, Stage
from tests.chaos.gaps import POLL_LEASE_IS_OVER
from tests.rig.bench import OWNER
from tests.rig.failpoints import Armed
from tests.rig.outside import Card

THUMB, HEART = "\N{THUMBS UP SIGN}", "\N{HEAVY BLACK HEART}"
# A second try would be made well within this.
SEEN_BY: Final = 8.0
# Whoever writes cards comes one after the other: what stands still there is ended, and holds up no message.
HELD_UP: Final = """
SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
    AND query_start < clock_timestamp() - interval '2 seconds' AND query NOT LIKE 'LOCK TABLE messenger.digests%'
"""
SENDING: Final = "SELECT count(*) > 0 FROM messenger.deliveries WHERE status = 'sending'"
CLAIMED: Final = "SELECT count(*) > 0 FROM messenger.deliveries WHERE status = 'claimed'"
RULES_OFF: Final = "UPDATE shared.approval_rules SET active = false"
SENDER: Final = "UPDATE shared.channels SET sender = 'other@people.test' WHERE channel = 'email'"
OVERDUE: Final = """
SELECT count(*) FROM chaos.turns WHERE overdue AND was IN ('claimed', 'sending')
"""
TAKEN: Final = "SELECT count(*) > 0 FROM chaos.turns WHERE was = 'queued'"
LATE_YES: Final = "SELECT count(*) FROM shared.pending_actions WHERE decided_at > expires_at"
DECISIONS: Final = "SELECT count(*) FROM shared.approval_events WHERE event_type IN ('approved', 'denied')"
BOTH_HEARD: Final = "SELECT count(*) = 2 FROM messenger.updates"
ONE_KEY_FOR_ALL: Final = "CREATE UNIQUE INDEX one_key ON shared.notifications (key)"
MOVED: Final = "UPDATE shared.contact_info SET value = $2 WHERE type = 'telegram' AND value = $1"
OTHER_BYTES: Final = """
SELECT count(*) FROM shared.pending_actions a JOIN messenger.deliveries d USING (notification_id)
WHERE a.status = 'executed' AND a.decided_by IS NOT NULL
    AND a.wire_shas <> ARRAY(SELECT p.wire_sha FROM messenger.parts p WHERE p.delivery_id = d.id ORDER BY p.n)
"""
WIRE_SHA: Final = "SELECT wire_sha FROM messenger.parts LIMIT 1"
FAILED_ONCE: Final = "SELECT count(*) > 0 FROM messenger.attempts WHERE ended_at IS NOT NULL"
EXPIRED_NOW: Final = "SELECT count(*) > 0 FROM shared.pending_actions WHERE expires_at < clock_timestamp()"
BRAKE: Final = "INSERT INTO shared.brakes (channel) VALUES ('email')"
RELEASE: Final = "UPDATE shared.brakes SET lifted_at = clock_timestamp()"
YES_GIVEN: Final = "SELECT count(*) > 0 FROM shared.pending_actions WHERE status = 'approved'"


async def killed_after_the_byte(stage: Stage) -> None:
    """The Messenger dies when the provider has the last byte; another takes over."""
    first = await stage.messenger(Armed("byte.telegram_written"))
    telling = stage.telling("rule <1>", contact_id=await stage.person())
    await stage.gone(first)
    await stage.messenger()
    await telling


async def stopped_before_the_marker(stage: Stage) -> None:
    """A Messenger stands still before its marker, and the owner takes the rule back meanwhile."""
    first = await stage.messenger(Armed("prepare.telegram", stop=True))
    telling = stage.telling("rule <1>", contact_id=await stage.person())
    await stage.stopped(first)
    await stage.fleet.sql(RULES_OFF)
    stage.goes_on(first)
    action = (await telling).get("action_id")
    if action is not None:
        await press(stage, await stage.fleet.outside.card(str(action)), "Deny")


async def braked_before_the_marker(stage: Stage) -> None:
    """The same where the owner puts the brake on, and lifts it when everything has had its try."""
    first = await stage.messenger(Armed("prepare.telegram", stop=True))
    telling = stage.telling("rule <1>", contact_id=await stage.person())
    await stage.stopped(first)
    await stage.fleet.house.butlers("brake", "on")
    stage.goes_on(first)
    await telling
    await stage.fleet.house.butlers("brake", "off", "--all")


async def stopped_past_the_lease(stage: Stage) -> None:
    """A Messenger stands still between marker and byte for longer than its lease, and wakes."""
    first = await stage.messenger(Armed("byte.telegram_unwritten", stop=True))
    telling = stage.telling("own <1>")
    await stage.stopped(first)
    await stage.messenger()
    await asyncio.sleep(PAST_THE_LEASE)
    stage.goes_on(first)
    await telling


async def wakes_into_the_attempt_of_another(stage: Stage) -> None:
    """One fails to connect and stands still before it can say so; meanwhile another sends, and takes its time."""
    await stage.fleet.outside.fault("email", "connect", "drop", times=1)
    await stage.fleet.outside.fault("email", "dot", "slow", value=4.0, times=1)
    first = await stage.messenger(Armed("settle.chosen", stop=True))
    telling = stage.telling("rule <1>", channel="email", contact_id=await stage.person())
    await stage.stopped(first)
    await stage.messenger()
    await stage.until(SENDING)
    stage.goes_on(first)
    await telling


async def answer_never_comes(stage: Stage) -> None:
    """The provider takes the message and says nothing: nobody says it again meanwhile."""
    await stage.fleet.outside.fault("telegram", "sendMessage", "accept_hang", times=1)
    await stage.messenger()
    telling = stage.telling("rule <1>", contact_id=await stage.person())
    await stage.until(SENDING)
    await asyncio.sleep(SEEN_BY)
    stage.demand(len(await stage.sent("rule <1>")) == 1, "sent again while the answer to the first was not known")
    stage.left_open = True
    telling.cancel()


async def server_error_of_what_arrived(stage: Stage) -> None:
    """The provider takes the message and answers 500."""
    await stage.fleet.outside.fault("telegram", "sendMessage", "500_accepted", times=1)
    await stage.messenger()
    await stage.tell("rule <1>", contact_id=await stage.person())


async def cut_after_it_arrived(stage: Stage) -> None:
    """The provider takes the mail and cuts the connection."""
    await stage.fleet.outside.fault("email", "dot", "accept_reset", times=1)
    await stage.messenger()
    await stage.tell("rule <1>", channel="email", contact_id=await stage.person())


async def too_many_requests(stage: Stage) -> None:
    """The provider asks to wait a second."""
    await stage.fleet.outside.fault("telegram", "sendMessage", "429", value=1, times=1)
    await stage.messenger()
    await stage.tell("rule <1>", contact_id=await stage.person())
    for _ in range(100):  # a busy machine answers before the second is over
        if await stage.sent("rule <1>"):
            return
        await asyncio.sleep(0.1)
    stage.demand(holds=False, otherwise="asked to wait, and never sent")


async def slow_provider_and_a_living_holder(stage: Stage) -> None:
    """An answer takes longer than a lease; nobody dies."""
    await stage.fleet.outside.fault("email", "dot", "slow", value=9.0, times=1)
    await stage.messenger()
    await stage.messenger()
    await stage.tell("rule <1>", channel="email", contact_id=await stage.person())
    stage.demand(not await stage.fleet.value(OVERDUE), "a lease ran out whose holder lives")


async def stopped_by_sigterm(stage: Stage) -> None:
    """SIGTERM while the provider takes its time."""
    await stage.fleet.outside.fault("email", "dot", "slow", value=5.0, times=1)
    first = await stage.messenger()
    telling = stage.telling("rule <1>", channel="email", contact_id=await stage.person())
    await stage.until(SENDING)
    stage.fleet.running["messenger"].remove(first)
    first.send(signal.SIGTERM)
    await first.wait()
    await stage.messenger()
    await telling
    await stage.settled()
    stage.demand(not await stage.fleet.value(OVERDUE), "a healthy provider, and nobody waited for its answer")


async def claim_stands_still(stage: Stage) -> None:
    """A Messenger stands still in the middle of claiming what waited; the others go on."""
    await stage.fleet.outside.fault("telegram", "sendMessage", "429", value=1, times=1)
    first = await stage.messenger(Armed("claim.taken_before_commit", stop=True))
    one, other = await stage.person(1), await stage.person(2)
    telling = stage.telling("rule <1>", contact_id=one)
    await stage.stopped(first)
    await stage.messenger()
    second = stage.telling("rule <2>", contact_id=other)
    while not second.done():
        # What stands still loses its transaction after ten seconds; nobody has to wait for that.
        stage.demand(not await stage.fleet.value(HELD_UP), "one Messenger that stands still holds up all others")
        await asyncio.sleep(0.2)
    stage.demand((await second)["status"] == "ok", "nothing goes out while one Messenger stands still")
    stage.goes_on(first)
    await telling


async def said_twice(stage: Stage) -> None:
    """The same call again, at once and later."""
    await stage.messenger()
    who = await stage.person()
    await asyncio.gather(*(stage.tell("rule <1>", contact_id=who) for _ in range(3)))
    again = await stage.tell("rule <1>", contact_id=who)
    stage.demand(again["status"] == "ok", "a repeat is not told what became of the first")


async def two_messages_of_one_request(stage: Stage) -> None:
    """Two messages in answer to one request."""
    await stage.messenger()
    context = {"request_id": "one request"}
    for text in ("own <1>", "own <2>"):
        await stage.tell(text, request_context=context)
        await stage.settled()
        stage.demand(await stage.sent(text), f"acknowledged, and never sent: {text}")


async def one_text_for_two_people(stage: Stage) -> None:
    """The same words in the same request to two people."""
    await stage.messenger()
    people = [await stage.person(number) for number in (1, 2)]
    await _expect(stage, [{"contact_id": who} for who in people])


async def one_text_of_two_butlers(stage: Stage) -> None:
    """Two butlers say the same in the same request."""
    await stage.messenger()
    await stage.butler("greeter")
    await _expect(stage, [{"by": "health"}, {"by": "greeter"}])


async def one_text_by_two_intents(stage: Stage) -> None:
    """The same words as a message, and as an answer to the owner's own message."""
    await stage.messenger()
    await _expect(stage, [{"intent": "send"}, {"intent": "reply"}], thread=await _asked(stage))


async def _asked(stage: Stage) -> str:
    """The thread of a message of the owner's that the house has received."""
    thread = f"{OWNER}:{await stage.fleet.outside.say(OWNER, 'what is up?')}"
    await stage.until("SELECT EXISTS (SELECT FROM switchboard.inbox WHERE thread = $1)", thread)
    return thread


async def _expect(stage: Stage, calls: list[dict[str, object]], thread: str | None = None) -> None:
    """Each of these calls with the same words and request is a message of its own."""
    context: dict[str, object] = {
        "request_id": "one request",
        "source_channel": "telegram",
        "source_endpoint_identity": "1",
        "source_sender_identity": str(OWNER),
    }
    context |= {"source_thread_identity": thread} if thread else {}
    for call in calls:
        asked = {"channel": "telegram", "message": "the same words", "request_context": context}
        arguments = {key: value for key, value in call.items() if key != "by"}
        await stage.call(str(call.get("by", "health")), "notify", {**asked, **arguments})
    # A Messenger that was just started is not known to all: what it is to send is queued then, and goes a little later.
    arrived, tries = 0, 50
    while arrived < len(calls) and tries > 0:
        await asyncio.sleep(0.1)
        arrived, tries = len(await stage.sent("the same words")), tries - 1
    stage.demand(arrived == len(calls), f"{len(calls)} messages with the same words, {arrived} sent")
    stage.same_words = True


async def liked_again(stage: Stage) -> None:
    """Like, heart, like: three wishes, of which the last is not the first one's repeat."""
    await stage.messenger()
    context = {
        "request_id": "one request",
        "source_channel": "telegram",
        "source_endpoint_identity": "1",
        "source_sender_identity": str(OWNER),
        "source_thread_identity": await _asked(stage),
    }
    for emoji in (THUMB, HEART, THUMB):
        asked = {"channel": "telegram", "message": "", "intent": "react", "emoji": emoji, "request_context": context}
        await stage.call("health", "notify", asked)
    set_there = len(await stage.reactions())
    stage.demand(set_there == 3, f"three reactions, {set_there} set")
    stage.same_words = True


async def tried_twice(stage: Stage) -> None:
    """A mail that is refused for now is tried again: the very same bytes."""
    await stage.fleet.outside.fault("email", "dot", "4xx", times=1)
    await stage.messenger()
    telling = stage.telling("rule <1>", channel="email", contact_id=await stage.person())
    await stage.until(FAILED_ONCE)
    before = await stage.fleet.value(WIRE_SHA)
    await telling
    stage.demand(await stage.fleet.value(WIRE_SHA) == before, "the bytes changed between two attempts")


async def one_mail(stage: Stage) -> None:
    """A mail to one person."""
    await stage.messenger()
    await stage.tell("rule <1>", channel="email", contact_id=await stage.person())


async def yes_and_no_at_once(stage: Stage) -> None:
    """Two Messengers hold a yes and a no in their hands at once."""
    first = await stage.messenger(Armed("press.judged", stop=True))
    card = await asked(stage)
    await press(stage, card, "Approve")
    await stage.stopped(first)
    await stage.fleet.sql(POLL_LEASE_IS_OVER)
    await stage.messenger()
    await press(stage, card, "Deny")
    await stage.until(BOTH_HEARD)
    await asyncio.sleep(1.0)
    stage.goes_on(first)
    await stage.settled()
    stage.demand(await stage.fleet.value(DECISIONS) == 1, "two words on one question counted")


async def address_changed_before_the_press(stage: Stage) -> None:
    """The card shows one address, and before the press the contact gets another."""
    await stage.messenger()
    card = await asked(stage)
    shown = f"{FIRST_CHAT + 1}"
    stage.demand(shown in card.text, "the card does not show where it goes")
    await stage.fleet.sql(MOVED, shown, f"{FIRST_CHAT + 99}")
    await press(stage, card, "Approve")
    await asyncio.sleep(2.0)
    stage.demand(not await stage.sent("yes <1>"), "went to an address that no card has shown")
    stage.left_open = True


async def clock_a_day_behind(stage: Stage) -> None:
    """A Messenger whose own clock is a day behind sends, and another looks on."""
    await stage.messenger(clock="-1d")
    telling = stage.telling("rule <1>", channel="email", contact_id=await stage.person())
    await stage.until(TAKEN)
    await stage.messenger()
    await telling
    stage.demand(not await stage.fleet.value(OVERDUE), "a lease ran out whose holder lives")


async def yes_after_its_time(stage: Stage) -> None:
    """A yes is being taken when its time runs out."""
    first = await stage.messenger(Armed("press.judged", stop=True))
    await press(stage, await asked(stage), "Approve")
    await stage.stopped(first)
    await stage.until(EXPIRED_NOW)
    stage.goes_on(first)
    await stage.messenger()
    await stage.settled()
    stage.demand(not await stage.fleet.value(LATE_YES), "a yes counted after its time")


async def killed_after_the_press(stage: Stage) -> None:
    """The Messenger dies when the yes is committed."""
    first = await stage.messenger(Armed("press.handled_after_commit"))
    await press(stage, await asked(stage), "Approve")
    await stage.gone(first)
    await stage.messenger()


async def sender_changed_after_the_yes(stage: Stage) -> None:
    """What was approved would go out with another sender: no yes was given for those bytes."""
    await stage.messenger()
    who = await stage.person(ruled=False)
    answer = await stage.tell("yes <1>", channel="email", contact_id=who)
    await stage.fleet.sql(BRAKE)
    await press(stage, await stage.fleet.outside.card(str(answer["action_id"])), "Approve")
    await stage.until(YES_GIVEN)
    await stage.fleet.sql(SENDER)
    await stage.fleet.sql(RELEASE)
    await asyncio.sleep(2.0)
    stage.demand(not await stage.fleet.value(OTHER_BYTES), "other bytes went out than were approved")
    stage.demand(not await stage.sent("yes <1>"), "went out with another sender than was approved")
    stage.left_open = True


async def asked(stage: Stage) -> Card:
    """The card of a message that waits for the owner's word."""
    answer = await stage.tell("yes <1>", contact_id=await stage.person(ruled=False))
    return await stage.fleet.outside.card(str(answer["action_id"]), within=15)


async def press(stage: Stage, card: Card, verb: str) -> None:
    """The owner's word."""
    await stage.fleet.outside.press(card, verb)


@dataclass(frozen=True, slots=True)
class Evil:
    """A bug by its name, the scenario it shows in, the settings of its fleet, and what is planted in the rows.

    `says` is part of the words by which it is found wrong there.
    """

    bug: str
    scenario: Scenario
    says: str
    env: Mapping[str, str] = field(default_factory=dict)
    sql: str = ""


# A session that stands still in a unit of work is ended after five seconds: the question must run out before.
SHORT: Final = {"BUTLERS_APPROVAL_TTL": "5s"}
TWICE: Final = "sent 2 times to a third party"
LATE: Final = "a yes counted after its time"
LEASE_RAN_OUT: Final = "a lease ran out whose holder lives"
ONE_OF_TWO: Final = "2 messages with the same words, 1 sent"
NO_AUTHORITY: Final = "sent to a third party without authority"
# The reference's words for each bug, and our name; the last is our own. Only what is never released shows by nothing
# but staying open.
EVILS: Final[Mapping[str, Evil]] = {
    "marker after send": Evil("marker_after_send", killed_after_the_byte, TWICE),
    "no fence predicate": Evil("no_fence", wakes_into_the_attempt_of_another, TWICE),
    "reaper requeues sending": Evil("reap_requeues_sending", killed_after_the_byte, TWICE),
    "retry on read timeout": Evil(
        "retry_on_timeout", answer_never_comes, "sent again while the answer to the first was not known"
    ),
    "retry on 500": Evil("server_error_treated_as_not_sent", server_error_of_what_arrived, TWICE),
    "lease not renewed": Evil("lease_not_renewed", slow_provider_and_a_living_holder, LEASE_RAN_OUT),
    "now() instead of clock_timestamp()": Evil("transaction_time", yes_after_its_time, LATE, SHORT),
    "key without target": Evil("key_without_target", one_text_for_two_people, ONE_OF_TWO),
    "key without origin": Evil("key_without_origin", one_text_of_two_butlers, ONE_OF_TWO, sql=ONE_KEY_FOR_ALL),
    "key without intent": Evil("key_without_intent", one_text_by_two_intents, ONE_OF_TWO),
    "wire_sha not compared at the marker": Evil("wire_sha_not_compared", sender_changed_after_the_yes, "approved"),
    "authority not re-checked at the marker": Evil(
        "authority_not_rechecked_at_marker", stopped_before_the_marker, NO_AUTHORITY
    ),
    "decide without lock": Evil("decide_without_lock", yes_and_no_at_once, "two words on one question counted"),
    "decide without sha": Evil(
        "decide_without_sha", address_changed_before_the_press, "went to an address that no card has shown"
    ),
    "decide without expiry": Evil("late_yes_counts", yes_after_its_time, LATE, SHORT),
    "approve releases in a second transaction": Evil(
        "release_in_a_second", killed_after_the_press, "left open as pending_approval"
    ),
    "duplicate returns error": Evil("repeat_is_an_error", said_twice, "a repeat is not told what became of the first"),
    "stored answer keyed by request_id only": Evil(
        "key_of_request_only", two_messages_of_one_request, "acknowledged, and never sent"
    ),
    "SMTP new Message-ID per attempt": Evil("new_message_id", tried_twice, "the bytes changed between two attempts"),
    "two recipients in one transaction": Evil("second_recipient", one_mail, "instead of"),
    "SKIP LOCKED removed": Evil("skip_locked_removed", claim_stands_still, "stands still"),
    "lease by the client's clock": Evil("own_clock_lease", clock_a_day_behind, LEASE_RAN_OUT),
    "reaction dedup by content": Evil("react_dedup_by_content", liked_again, "three reactions, "),
    "SIGTERM kills in-flight": Evil(
        "sigterm_at_once", stopped_by_sigterm, "a healthy provider, and nobody waited for its answer"
    ),
    "429 treated as failed": Evil("too_many_requests_as_failed", too_many_requests, "asked to wait, and never sent"),
    "brake not asked for at the marker": Evil("brake_ignored_at_the_marker", braked_before_the_marker, NO_AUTHORITY),
}
