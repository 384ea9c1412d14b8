"""SIGKILL in the three moments between two stages that most look like a place to lose or double a message.

Ten kills each, thirty where it is played whole. The pauses are the same in every run; what they hit is not, since
processes race: so each test reads from the rows of the dead Messenger how often it really hit, and demands a minimum.
"""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio

from tests.chaos.gaps import ALL_ROUNDS, LEASES_ARE_OVER, NONE, ROUNDS, STATE, Gaps, begin, soon
from tests.rig import fresh
from tests.rig.bench import OWNER, Bench
from tests.rig.outside import SENDS

pytestmark = [pytest.mark.slow, pytest.mark.whole]

CARD = "SELECT status FROM messenger.deliveries WHERE action_id = $1 AND channel = 'telegram'"
CARDS_ASTRAY = """
SELECT status, count(*) FROM messenger.deliveries WHERE class = 'card' AND status NOT IN ('sent', 'cancelled')
GROUP BY status
"""
UNDECIDED = "SELECT count(*) FROM shared.pending_actions WHERE status <> 'denied'"
PAST_MARKER = "SELECT id FROM messenger.deliveries WHERE status = 'sending'"
UNKNOWN = "SELECT id FROM messenger.deliveries WHERE status = 'uncertain'"
LEFT_OF = "SELECT status FROM messenger.deliveries WHERE address = $1"
ADD_RULE = "INSERT INTO shared.approval_rules (tool_name, arg_constraints) VALUES ('notify', $1)"
# In every fifth round the Messenger is dead before anything is parked.
DEAD_BEFORE = 5
SLOW_SECONDS = 4.0
STAYS_SECONDS = 3.0


@pytest_asyncio.fixture
async def gaps(bench: Bench, whole: bool) -> AsyncIterator[Gaps]:  # noqa: FBT001
    """A fleet to be killed in, stopped in order (no traceback in any log), and ended whatever happens."""
    made = await begin(bench, ALL_ROUNDS if whole else ROUNDS)
    try:
        yield made
        await made.fleet.stop()
    finally:
        await made.fleet.abandon()


async def test_between_parking_and_its_card(gaps: Gaps) -> None:
    """Killed 0-30 ms after the pending action is committed: the card comes, with buttons that decide.

    At least a third must die without the card's receipt; those that were dead before always do.
    """
    parked, rng = await gaps.hear("cards"), Random(3)
    outside = gaps.fleet.outside
    actions = []
    for number in range(gaps.rounds):
        parked.clear()
        dead_before = number % DEAD_BEFORE == 0
        if dead_before:
            await gaps.kill()
        telling = asyncio.create_task(gaps.tell(fresh.words("card"), recipient=str(fresh.chat())))
        await soon(parked)
        if not dead_before:
            await asyncio.sleep(rng.uniform(0, 0.03))
            await gaps.kill()
        action = str((await telling)["action_id"])
        actions.append(action)
        await gaps.landed_on(CARD, action)
        await gaps.fleet.sql(LEASES_ARE_OVER)  # the owner's chat is one: it would hold up the rounds that follow
        await gaps.again()
        assert list((await outside.card(action)).buttons) == ["Approve", "Deny"]
    for action in actions:
        await outside.press(await outside.card(action), "Deny")
    async with asyncio.timeout(30):
        while await gaps.fleet.value(UNDECIDED):
            await asyncio.sleep(0.05)
    came = [e for e in await outside.journal() if e.method in SENDS and "reply_markup" in e.payload]
    hit = gaps.rounds - gaps.landed["sent"]
    figures = {"hit": hit, "cards": len(came), "dead_before": gaps.rounds // DEAD_BEFORE}
    found = await gaps.judged("parking and card", **figures)
    assert found.figures["ended_error"] == gaps.rounds, "every question was answered with no"
    assert gaps.rounds <= len(came) <= 2 * gaps.rounds, "one kill repeats at most the one card that was on its way"
    assert await gaps.fleet.sql(CARDS_ASTRAY) == []
    assert hit >= gaps.rounds / 3, gaps.landed


async def test_between_the_press_and_the_send(gaps: Gaps) -> None:
    """Killed 0-20 ms (every third time 20-60) after the yes: it goes out once, or its end is honestly not known.

    At least a third must die with the yes committed and the message not settled. Only what some dead
    Messenger left past its marker may end `uncertain`; a later kill may hit an earlier message too.
    """
    released, rng = await gaps.hear("released"), Random(4)
    waiting, past_marker = {}, set()
    for _ in range(gaps.rounds):
        answer = await gaps.tell(fresh.words("press"), recipient=str(fresh.chat()))
        waiting[str(answer["notification_id"])] = str(answer["action_id"])
    for number, (notification, action) in enumerate(waiting.items()):
        card = await gaps.fleet.outside.card(action, within=20)
        released.clear()
        await gaps.fleet.outside.press(card, "Approve")
        await soon(released)
        await asyncio.sleep(rng.uniform(0, 0.02) if number % 3 else rng.uniform(0.02, 0.06))
        await gaps.kill()
        await gaps.landed_on(STATE, notification)
        past_marker |= {row["id"] for row in await gaps.fleet.sql(PAST_MARKER)}
        await gaps.again()
    hit = gaps.rounds - gaps.landed["sent"]
    found = await gaps.judged("press and send", hit=hit)
    ends = found.figures.get("ended_ok", 0) + found.figures.get("ended_uncertain", 0)
    assert ends == gaps.rounds, "a yes was lost"
    unknown = {row["id"] for row in await gaps.fleet.sql(UNKNOWN)}
    assert unknown <= past_marker, "unknown without a reason"
    assert hit >= gaps.rounds / 3, gaps.landed


async def told_to_others(gaps: Gaps) -> list[str]:
    """What the provider has for anybody but the owner, who is asked about each that may have arrived."""
    entries = await gaps.fleet.outside.journal()
    return [entry.text for entry in entries if entry.method in SENDS and entry.to != str(OWNER)]


async def test_between_the_provider_and_its_answer(gaps: Gaps) -> None:
    """Killed when the provider has the message and has not answered yet: `uncertain`, and never sent again.

    The answer takes four seconds, so that at least nine of ten must die past the marker without a
    receipt, and exactly these end `uncertain`.
    """
    outside, rng, seen = gaps.fleet.outside, Random(5), 0
    callers = []
    for number in range(gaps.rounds):
        text, chat = fresh.words("answer"), fresh.chat()
        contact = await gaps.fleet.contact(f"Person {number}", telegram=chat)
        await gaps.fleet.sql(ADD_RULE, {"contact_id": contact})
        await outside.fault("telegram", "sendMessage", "slow", value=SLOW_SECONDS, match=text, times=1)
        callers.append(asyncio.create_task(gaps.tell(text, contact_id=contact)))
        async with asyncio.timeout(10):
            while not (entries := await outside.having(text, seen)):
                await asyncio.sleep(0.005)
        seen = entries[-1].n
        await asyncio.sleep(rng.uniform(0, 0.05))
        await gaps.kill()
        left = await gaps.fleet.sql(LEFT_OF, str(chat))
        gaps.landed.update([str(row["status"]) for row in left] or [NONE])
        await gaps.again()
    told = await asyncio.gather(*callers)
    hit = gaps.landed["sending"]
    found = await gaps.judged("provider and settle", hit=hit)
    arrived = await told_to_others(gaps)
    assert len(arrived) == len(set(arrived)) == gaps.rounds
    await asyncio.sleep(STAYS_SECONDS)
    assert len(await told_to_others(gaps)) == gaps.rounds
    assert found.figures["ended_uncertain"] == hit >= gaps.rounds * 0.9, gaps.landed
    assert {answer["status"] for answer in told} <= {"queued", "uncertain"}, told
