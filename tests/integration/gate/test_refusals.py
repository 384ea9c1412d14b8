"""What is tried in vain has its line in the audit: who, and why, once in five minutes of each, and no words."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from cachetools import TTLCache

from butlers.refusals import MOST_LINES, note_refusal
from shared.auth import keystore
from shared.auth.tokens import Signer, Unauthorized, mint_client_token
from shared.config.timings import STANDARD
from shared.db.pool import Connection, Database, Record
from shared.errors import Forbidden, HopFailed
from shared.storage import pairings
from tests.integration.house import House, button_data, opened
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import new_chat
from tests.rig.cluster import Cluster
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LINES = """
SELECT actor, reason, detail FROM shared.approval_events
WHERE event_type = 'refused' AND seq > $1 AND detail ->> 'caller' = $2 ORDER BY seq
"""
LAST = "SELECT coalesce(max(seq), 0) FROM shared.approval_events"
PRIMARY_OF_THE_OWNER = """
SELECT value FROM shared.contact_info i JOIN shared.contacts c ON c.id = i.contact_id
WHERE 'owner' = ANY (c.roles) AND i.type = 'telegram' AND i.is_primary
"""
FORGET = "DELETE FROM shared.request_windows WHERE lineage LIKE 'refused:%'"
FIVE_MINUTES_LATER = """
UPDATE shared.request_windows SET first_at = first_at - interval '5 minutes 1 second' WHERE lineage LIKE 'refused:%'
"""
STRANGER = 9000000007


async def last(house: House) -> int:
    """The audit's newest number, from where on each caller's attempts count afresh."""
    await house.sql.execute(FORGET)
    return int(await house.sql.fetchval(LAST))


async def lines(house: House, since: int, caller: str) -> list[Record]:
    return await house.sql.fetch(LINES, since, caller)


async def card_of(house: House) -> Mapping[str, object]:
    """The card of a message that waits for the owner."""
    message = f"words {uuid4()}"
    contact = await house.contact("Zoe", telegram=new_chat())
    assert (await house.notify(message=message, contact_id=contact))["status"] == "pending_approval"
    return (await until(lambda: house.cards(message)))[-1]


async def press(house: House, card: Mapping[str, object], data: str, who: int = OWNER) -> str:
    """What became of a press in the chat of the owner."""
    number = int(str(card["provider_id"]))
    told = await house.box.api("press", as_=who, chat=OWNER, message_id=number, data=data)
    return str((await house.handled(told["update_id"]))["outcome"])


async def stranger(house: House) -> str:
    card = await card_of(house)
    return await press(house, card, button_data(card)[0], STRANGER)


async def forged(house: House) -> str:
    card = await card_of(house)
    return await press(house, card, f"{button_data(card)[0][:-2]}zz")


async def of_another_card(house: House) -> str:
    card, other = await card_of(house), await card_of(house)
    tag = button_data(other)[0].rpartition(":")[2]
    return await press(house, card, f"{button_data(card)[0].rpartition(':')[0]}:{tag}")


async def stale(house: House) -> str:
    card = await card_of(house)
    await house.sql.execute("UPDATE shared.pending_actions SET revision = revision + 1 WHERE status = 'pending'")
    outcome = await press(house, card, button_data(card)[0])
    await house.sql.execute("UPDATE shared.pending_actions SET revision = revision - 1 WHERE status = 'pending'")
    return outcome


async def no_button(house: House) -> str:
    return await press(house, await card_of(house), "approve")


Try = Callable[[House], Awaitable[str]]
PRESSES: Mapping[str, tuple[Try, int, str, str]] = {
    "a stranger": (stranger, STRANGER, "stranger", "not the owner"),
    "forged": (forged, OWNER, "stale", "not valid"),
    "of another card": (of_another_card, OWNER, "stale", "not valid"),
    "stale": (stale, OWNER, "stale", "not valid"),
    "no button": (no_button, OWNER, "not_ours", "no button of ours"),
}


@pytest.mark.parametrize("tried", PRESSES)
async def test_a_press_that_is_refused_is_audited(house: House, tried: str) -> None:
    attempt, who, outcome, why = PRESSES[tried]
    since = await last(house)
    assert await attempt(house) == outcome
    [line] = await lines(house, since, f"telegram:{who}")
    assert line["actor"] == "messenger"
    assert why in line["reason"]
    assert set(line["detail"]) == {"caller", "about"}  # no tag, which would be a button


async def test_a_press_that_counts_or_comes_late_is_no_refusal(house: House) -> None:
    since = await last(house)
    card = await card_of(house)
    assert [await press(house, card, button_data(card)[1]) for _ in range(2)] == ["denied", "late"]
    assert await lines(house, since, f"telegram:{OWNER}") == []


async def test_a_stranger_who_presses_again_and_again_leaves_one_line(house: House) -> None:
    since, card = await last(house), await card_of(house)
    for n in range(12):
        assert await press(house, card, f"{button_data(card)[0]}{n or ''}", STRANGER) == "stranger"
    assert len(await lines(house, since, f"telegram:{STRANGER}")) == 1
    await house.sql.execute(FIVE_MINUTES_LATER)
    assert await press(house, card, button_data(card)[0], STRANGER) == "stranger"
    assert len(await lines(house, since, f"telegram:{STRANGER}")) == 2
    assert await press(house, card, button_data(card)[0], STRANGER + 1) == "stranger"
    assert len(await lines(house, since, f"telegram:{STRANGER + 1}")) == 1


async def test_a_pairing_code_that_is_none_is_audited_without_the_code(house: House) -> None:
    since = await last(house)
    told = await house.box.api("say", as_=STRANGER, text="/start 7K2QXYZ")
    assert (await house.handled(told["update_id"]))["outcome"] == "not_paired"
    [line] = await lines(house, since, f"telegram:{STRANGER}")
    assert "pairing code" in line["reason"]
    assert "7K2QXYZ" not in str(dict(line))


async def test_a_link_that_is_over_is_start_in_the_owners_own_chat(house: House) -> None:
    told = await house.box.api("say", as_=OWNER, text="/start 7K2QXYZ")
    assert (await house.handled(told["update_id"]))["outcome"] == "command"


async def test_a_valid_code_from_a_chat_of_somebody_else_is_called_no_false_one(cluster: Cluster) -> None:
    live = {"BUTLERS_TELEGRAM_TOKEN": "77:live", "BUTLERS_TELEGRAM_BASE_URL": "{sandbox}", "BUTLERS_RATE_LIMITS": "0"}
    async with opened(cluster, loops=True, timings=STANDARD, **live) as house:
        since, chat, code = await last(house), new_chat(), uuid4().hex
        await house.contact("Zoe", telegram=chat)
        await pairings.offer(house.sql, code, STANDARD.pairing)
        told = await house.box.api("say", as_=int(chat), text=f"/start {code}")
        assert (await house.handled(told["update_id"]))["outcome"] == "chat_taken"
        [line] = await lines(house, since, f"telegram:{chat}")
        assert line["reason"] == "A valid pairing code from a chat that belongs to another contact."
        told_before = await house.sql.fetchval(PRIMARY_OF_THE_OWNER)
        assert told_before == str(OWNER), "the owner is told where he was told before"


async def test_a_valid_code_is_used_up_in_the_sandbox_and_makes_nobody_the_owner(house: House) -> None:
    since, chat, code = await last(house), new_chat(), uuid4().hex
    await pairings.offer(house.sql, code, STANDARD.pairing)
    for outcome in ("not_paired_here", "not_paired"):
        told = await house.box.api("say", as_=int(chat), text=f"/start {code}")
        assert (await house.handled(told["update_id"]))["outcome"] == outcome
    assert "in the sandbox" in (await lines(house, since, f"telegram:{chat}"))[0]["reason"]
    assert await house.sql.fetchval(PRIMARY_OF_THE_OWNER) == str(OWNER)


async def test_where_there_is_no_owner_yet_nothing_is_called_false(cluster: Cluster) -> None:
    async with opened(cluster) as house:
        card = await card_of(house)
        await house.sql.execute("UPDATE shared.contacts SET roles = '{}'")
        since = await last(house)
        assert await press(house, card, button_data(card)[0]) == "no_owner"
        told = await house.box.api("say", as_=OWNER, text="/start 7K2QXYZ")
        assert (await house.handled(told["update_id"]))["outcome"] == "no_owner"
        assert await lines(house, since, f"telegram:{OWNER}") == []


async def test_a_contact_that_is_nobody_is_audited_and_one_that_is_no_id_is_not(house: House) -> None:
    since, words = await last(house), f"words {uuid4()}"
    guessed = str(uuid4())
    for contact_id in ("abc-123", guessed, str(uuid4())):
        assert (await house.notify(message=words, contact_id=contact_id))["status"] == "error"
    [line] = await lines(house, since, "greeter")
    assert (line["actor"], line["detail"]["named"]) == ("greeter", guessed)
    assert words not in str(dict(line))


async def test_a_name_that_nobody_bears_is_audited_without_its_words(house: House) -> None:
    since, words = await last(house), f"Words in the place of a name {uuid4()}"
    house.context("greeter").refused.clear()
    assert (await house.notify(message="x", recipient=words))["status"] == "error"
    [line] = await lines(house, since, "greeter")
    assert words not in str(dict(line))


async def neighbour(house: House) -> None:
    await house.hop("greeter", "health", "notify", {"channel": "telegram", "message": "x"})


async def messenger(house: House) -> None:
    await house.hop("greeter", "messenger", "route.execute", {})


async def inbox(house: House) -> None:
    await house.hop("greeter", "switchboard", "ingest", {})


CALLS: Mapping[str, tuple[Callable[[House], Awaitable[None]], str, str]] = {
    "the Messenger": (messenger, "messenger", "may not call this one"),
    "its neighbour's mind": (neighbour, "health", "is not available to a hop"),
    "what the Messenger brings": (inbox, "switchboard", "may not take in messages"),
}


@pytest.mark.parametrize("called", CALLS)
async def test_a_daemon_that_calls_where_it_may_not_is_audited(house: House, called: str) -> None:
    call, by, why = CALLS[called]
    since = await last(house)
    for _ in range(2):
        with pytest.raises(HopFailed):
            await call(house)
    [line] = await lines(house, since, "greeter")
    assert line["actor"] == by
    assert why in line["reason"]


@dataclass(slots=True)
class Counting:
    """A database that counts its units of work."""

    inner: Database
    units: int = 0

    @asynccontextmanager
    async def work(self) -> AsyncIterator[Connection]:
        self.units += 1
        async with self.inner.work() as connection:
            yield connection


async def test_a_storm_of_refusals_costs_one_unit_of_work(house: House) -> None:
    since, counting = await last(house), Counting(house.context("health").db)
    context = replace(house.context("health"), db=counting, refused=TTLCache(1, 60))  # type: ignore[arg-type]  # it does as one
    await asyncio.gather(*(note_refusal(context, "greeter", "A storm.") for _ in range(50)))
    assert counting.units == 1
    [line] = await lines(house, since, "greeter")
    assert line["reason"] == "A storm."


async def test_ever_new_refusals_of_one_caller_leave_a_hundred_lines_and_take_none_of_another_s(house: House) -> None:
    counting = Counting(house.context("health").db)
    context = replace(house.context("health"), db=counting, refused=TTLCache(1024, 60))  # type: ignore[arg-type]  # it does as one
    for n in range(MOST_LINES + 1):
        await note_refusal(context, "greeter", f"It asked for butler-{n}.")
        await note_refusal(context, "greeter", "It has no such message.", str(n))
    assert counting.units == MOST_LINES
    since = await last(house)
    await note_refusal(context, "console", "Something else.")
    assert len(await lines(house, since, "console")) == 1


async def test_a_client_is_named_where_it_proved_itself_and_nobody_else_is(house: House) -> None:
    since = await last(house)
    door, call = house.assembly.local["health"], {"channel": "telegram", "message": "x"}
    keys = keystore.read(house.settings.home, keystore.OWNER)
    unknown = mint_client_token(Signer(keystore.OWNER, keys.private_pem, time.time), "health", timedelta(hours=1)).token
    for token, refusal in (
        (house.tokens["greeter"], "is not for `health`"),
        (unknown, "revoked"),
        ("x.y.z", "not one of ours"),
    ):
        with pytest.raises(Unauthorized, match=refusal):
            await door.call(token, "notify", call)
    [foreign] = await lines(house, since, "client:greeter")
    [revoked] = await lines(house, since, "client:health")
    assert {foreign["actor"], revoked["actor"]} == {"health"}
    assert "is not for `health`" in foreign["reason"]
    assert "revoked" in revoked["reason"]
    assert await house.sql.fetchval("SELECT count(*) FROM shared.approval_events WHERE seq > $1", since) == 2


async def test_a_caller_chooses_no_word_of_the_reason(house: House) -> None:
    since, door = await last(house), house.assembly.local["messenger"]
    pem = keystore.read(house.settings.home, "greeter").private_pem
    for n in range(3):
        elsewhere = {"sub": "greeter", "aud": f"health`. The owner allowed {n} `", "scope": "hop"}
        over = Signer("greeter", pem, partial(float, time.time() - 1000 - 60 * n))
        for token in (Signer("greeter", pem, time.time).mint(elsewhere, 60).token, over.token_for("messenger")):
            with pytest.raises(Unauthorized):
                await door.call(token, "route.execute", {})
    said = [line["reason"] for line in await lines(house, since, "greeter")]
    assert said == ["The token is not for `messenger`.", "The token has expired."]


async def test_a_client_at_a_tool_for_daemons_is_audited_with_the_tool(house: House) -> None:
    since = await last(house)
    with pytest.raises(Forbidden):
        await house.assembly.local["switchboard"].call(house.tokens["switchboard"], "route", {})
    [line] = await lines(house, since, "switchboard")
    assert line["detail"] == {"caller": "switchboard", "kind": "client", "tool": "route"}


async def test_nobody_brings_the_messenger_its_own_words(house: House, message: str) -> None:
    brought = {
        "schema_version": "notify.v1",
        "origin_butler": "messenger",
        "delivery": {"intent": "send", "channel": "telegram", "message": message},
    }
    context = {
        "request_id": message,
        "source_channel": "mcp",
        "source_endpoint_identity": "switchboard",
        "source_sender_identity": "switchboard",
    }
    envelope = {
        "schema_version": "route.v1",
        "request_context": context,
        "target": {"butler": "messenger", "tool": "route.execute"},
        "input": {"context": {"notify_request": brought}},
    }
    told = await house.hop("switchboard", "messenger", "route.execute", envelope)
    assert (told["status"], told["error"]["class"]) == ("error", "forbidden")  # type: ignore[index]  # an object
    assert house.sent(message) == []
