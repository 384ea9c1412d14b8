"""What may have arrived is before the owner's eyes soon, and the owner's word on it holds, wherever it is given."""

import asyncio
import json
import signal
from datetime import timedelta

import pytest

from shared.hashing import reference
from shared.rpc import Answer
from tests.rig import fresh
from tests.rig.fleet import Fleet
from tests.rig.outside import Card
from tests.rig.waiting import eventually

OF = "SELECT id::text FROM messenger.deliveries WHERE notification_id = $1"
SHOWN = "SELECT settled_at FROM messenger.deliveries WHERE about::text = $1 AND settled_at IS NOT NULL"


async def anna(fleet: Fleet) -> tuple[str, int]:
    """A contact whom every butler may write to, and her chat."""
    chat = fresh.chat()
    contact = await fleet.contact("Anna", telegram=chat)
    await fleet.sql("INSERT INTO shared.approval_rules (arg_constraints) VALUES ($1)", {"contact_id": contact})
    return contact, chat


async def unknown(fleet: Fleet, said: str) -> tuple[Answer, str, int]:
    """The answer, the delivery and the chat of a message that was accepted while its answer was lost."""
    contact, chat = await anna(fleet)
    await fleet.outside.fault("telegram", "sendMessage", "accept_reset", match=said, times=1)
    answer = await fleet.notify(channel="telegram", message=said, contact_id=contact)
    assert answer["status"] == "uncertain", answer
    return answer, str(await fleet.value(OF, answer["notification_id"])), chat


async def cli(fleet: Fleet, *argv: str) -> tuple[int, str]:
    code, out, wrong = await fleet.house.butlers("deliveries", *argv)
    return code, (out or wrong).strip()


async def card(fleet: Fleet, delivery: str) -> Card:
    found = await fleet.outside.card(delivery)
    assert f"ref {reference(delivery)}" in found.text
    assert list(found.buttons) == ["It arrived", "Send again", "Leave it"]
    return found


async def edited(fleet: Fleet, card: Card, words: str) -> None:
    """Until the card says so and has no buttons any more."""

    def is_it(entry: object) -> bool:
        payload = entry.payload  # type: ignore[attr-defined]  # a line of the journal
        same = str(payload.get("message_id")) == str(card.message_id)
        return same and payload.get("method") == "editMessageText" and words in str(payload.get("text"))

    await fleet.outside.until(is_it)


@pytest.mark.slow
@pytest.mark.modes("each")
async def test_a_killed_messengers_doubt_is_shown_within_lease_and_five_seconds(fleet: Fleet) -> None:
    said = fresh.words("killed")
    contact, chat = await anna(fleet)
    await fleet.outside.fault("telegram", "sendMessage", "accept_hang", match=said, times=1)
    calling = asyncio.create_task(fleet.notify(channel="telegram", message=said, contact_id=contact))
    await fleet.outside.arrived(said, chat)
    [messenger] = fleet.running.pop("messenger")
    messenger.send(signal.SIGKILL)
    await messenger.wait()
    [held] = await fleet.sql("SELECT id::text, lease_until FROM messenger.deliveries WHERE address = $1", str(chat))
    await fleet.restart("messenger")
    there = await fleet.value("SELECT clock_timestamp()")
    shown = await card(fleet, str(held["id"]))
    [row] = await eventually(lambda: fleet.sql(SHOWN, held["id"]))
    # Nobody can show it before somebody is there, however long a process takes to start here.
    assert row["settled_at"] - max(held["lease_until"], there) < timedelta(seconds=5)
    assert "the process that was sending it stopped responding" in shown.text
    assert said in shown.text
    assert (await calling)["status"] in {"queued", "uncertain"}
    await fleet.outside.press(shown, "It arrived")
    await edited(fleet, shown, "You confirmed that it arrived.")
    again = await fleet.notify(channel="telegram", message=said, contact_id=contact)
    assert (again["status"], again["duplicate"]) == ("ok", True)
    await fleet.outside.arrived(said, chat)


@pytest.mark.every_mode
async def test_sent_again_by_a_press_is_sent_once_more_and_every_surface_says_so(fleet: Fleet) -> None:
    said = fresh.words("again")
    answer, delivery, chat = await unknown(fleet, said)
    shown = await card(fleet, delivery)
    await fleet.outside.press(shown, "Send again")
    await fleet.outside.press(shown, "Send again")
    await edited(fleet, shown, "You had it sent again.")
    await fleet.outside.until(lambda e: e.to == str(chat) and said in e.text, 2)
    asked = {"notification_id": answer["notification_id"], "wait_seconds": 20}
    settled = await fleet.call("health", "notification_status", asked)
    assert (settled["status"], "may have arrived twice" in str(settled["note"])) == ("ok", True)
    code, complaint = await cli(fleet, "resolve", delivery, "leave")
    assert (code, "Sent." in complaint) == (1, True)
    assert len([e for e in await fleet.outside.journal() if e.to == str(chat)]) == 2


async def test_the_command_line_lists_shows_and_resolves(fleet: Fleet) -> None:
    said = fresh.words("cli")
    answer, delivery, chat = await unknown(fleet, said)
    shown = await card(fleet, delivery)
    code, out = await cli(fleet, "list", "--status", "uncertain", "--json")
    [found] = [row for row in json.loads(out)["deliveries"] if row["id"] == delivery]
    assert (found["message"], found["contact"], found["reference"]) == (said, "Anna", reference(delivery))
    code, out = await cli(fleet, "show", reference(delivery))
    assert (code, "connection_lost" in out, said in out) == (0, True, True)
    code, out = await cli(fleet, "show", delivery[:13], "--json")
    assert [row["outcome"] for row in json.loads(out)["attempts"]] == ["connection_lost"]
    assert await cli(fleet, "resolve", delivery[:13], "leave") == (
        0,
        "You left it unconfirmed. It is not sent again.",
    )
    await edited(fleet, shown, "You left it unconfirmed")
    again = await fleet.call("health", "notification_status", {"notification_id": answer["notification_id"]})
    assert (again["status"], "the owner closed it" in str(again["message"])) == ("uncertain", True)
    assert (await cli(fleet, "resolve", delivery, "again"))[0] == 1
    await fleet.outside.arrived(said, chat)


async def test_what_was_refused_is_retried_under_the_same_key(fleet: Fleet) -> None:
    said = fresh.words("retry")
    contact, chat = await anna(fleet)
    await fleet.outside.fault("telegram", "sendMessage", "400", match=said, times=1)
    answer = await fleet.notify(channel="telegram", message=said, contact_id=contact)
    assert answer["status"] == "error", answer
    delivery = str(await fleet.value(OF, answer["notification_id"]))
    assert await cli(fleet, "retry", delivery) == (0, "It will be tried again if it is still allowed.")
    await fleet.outside.arrived(said, chat)
    asked = {"notification_id": answer["notification_id"], "wait_seconds": 20}
    assert (await fleet.call("health", "notification_status", asked))["status"] == "ok"
    assert (await cli(fleet, "retry", delivery))[0] == 1


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (("list", "--status", "lost"), "Unknown status `lost`"),
        (("show", "ffffffff-ffff"), "No delivery has"),
        (("resolve", "ffffffff-ffff", "maybe"), "is not a valid answer"),
        (("retry", "ffffffff-ffff"), "No delivery has"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_a_sentence(
    fleet: Fleet, argv: tuple[str, ...], complaint: str
) -> None:
    code, said = await cli(fleet, *argv)
    assert (code, complaint in said, said.count("\n")) == (1, True, 0), said
