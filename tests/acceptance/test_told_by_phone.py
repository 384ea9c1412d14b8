"""The owner presses Approve, and nothing arrives: the phone says so within five seconds, by a message of its own.

An edit of the card makes no sound. The five seconds begin with the press, or with the end where that comes later.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from tests.integration.mailboxes import Mailbox, mailbox
from tests.rig import fresh
from tests.rig.bench import OWNER, Bench
from tests.rig.fleet import Fleet
from tests.rig.outside import Card, Entry
from tests.rig.waiting import LONGEST, eventually

PROMISED = timedelta(seconds=5)
DECIDED = "SELECT decided_at FROM shared.pending_actions WHERE notification_id::text = $1"
ENDED = """
SELECT d.status, d.settled_at, c.settled_at AS told_at
FROM messenger.deliveries d JOIN messenger.deliveries c ON c.about = d.id
WHERE d.notification_id::text = $1 AND c.status = 'sent'
"""
OUT_OF_TIME = """
WITH d AS (UPDATE messenger.deliveries SET not_after = clock_timestamp() WHERE notification_id::text = $1)
UPDATE shared.notifications SET not_after = clock_timestamp() WHERE id::text = $1
"""
RECEIPT = """
SELECT p.provider_id FROM messenger.parts p JOIN messenger.deliveries d ON d.id = p.delivery_id
WHERE d.notification_id::text = $1 AND p.status = 'sent'
"""
REPORT = """\
From: MAILER-DAEMON@relay.example
Content-Type: multipart/report; report-type=delivery-status; boundary=b
Subject: Undelivered

--b
Content-Type: message/delivery-status

Reporting-MTA: dns; relay.example

Final-Recipient: rfc822; {to}
Action: failed
Status: 5.1.1
Diagnostic-Code: smtp; 550 nobody of that name

--b
Content-Type: text/rfc822-headers

Message-ID: {message_id}
--b--
"""


async def asked(fleet: Fleet, channel: str, said: str) -> tuple[str, Card, str]:
    """The notification, the card, and the address of a message to somebody else that waits for the owner."""
    chat, to = fresh.chat(), fresh.address()
    contact = await fleet.contact("Frank", telegram=chat, email=to)
    answer = await fleet.notify(channel=channel, message=said, contact_id=contact)
    assert answer["status"] == "pending_approval", answer
    card = await fleet.outside.card(str(answer["action_id"]))
    return str(answer["notification_id"]), card, to


async def heard(fleet: Fleet, card: Card, said: str, words: str, within: float = LONGEST) -> Entry:
    """The message that comes after the card with these words and those of the butler; the only one."""

    def is_it(entry: Entry) -> bool:
        new = entry.method == "sendMessage" and entry.to == str(OWNER) and entry.n > card.parts[-1].n
        return new and words in entry.text and said in entry.text

    [entry] = await fleet.outside.until(is_it, within=within)
    return entry


async def ended(fleet: Fleet, notification: str) -> tuple[str, datetime, datetime]:
    """How it ended, when, and when the owner's phone had the message about it, by the database's clock."""
    [row] = await eventually(lambda: fleet.sql(ENDED, notification))
    return row["status"], row["settled_at"], row["told_at"]


@pytest.mark.parametrize(
    ("channel", "stage", "fault", "why"),
    [
        ("telegram", "sendMessage", "403", "Frank has blocked the bot."),
        ("telegram", "sendMessage", "400", "The provider rejected it: "),
        ("email", "dot", "5xx", "The provider rejected it: "),
    ],
)
async def test_what_the_provider_refuses_after_a_yes(
    fleet: Fleet, channel: str, stage: str, fault: str, why: str
) -> None:
    said = fresh.words("refused")
    notification, card, _ = await asked(fleet, channel, said)
    await fleet.outside.fault(channel, stage, fault, match=said, times=1)
    await fleet.outside.press(card, "Approve")
    told = await heard(fleet, card, said, "Not delivered: health's message to Frank by ")
    assert why in told.text
    status, _, told_at = await ended(fleet, notification)
    [pressed] = await fleet.sql(DECIDED, notification)
    assert (status, told_at - pressed["decided_at"] < PROMISED) == ("failed", True)


async def test_what_ran_out_of_time_after_a_yes(fleet: Fleet) -> None:
    said = fresh.words("late")
    notification, card, _ = await asked(fleet, "telegram", said)
    assert (await fleet.house.butlers("brake", "on", "--butler", "health"))[0] == 0
    try:
        await fleet.outside.press(card, "Approve")
        await eventually(lambda: fleet.value(DECIDED, notification))
        await fleet.sql(OUT_OF_TIME, notification)
        told = await heard(fleet, card, said, "Not delivered: health's message to Frank by Telegram")
    finally:
        await fleet.house.butlers("brake", "off", "--all")
    assert "Expired before it could be sent." in told.text
    status, ended_at, told_at = await ended(fleet, notification)
    assert (status, told_at - ended_at < PROMISED) == ("expired", True)


@pytest.fixture(scope="module")
def box() -> Iterator[Mailbox]:
    with mailbox() as made:
        yield made


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_what_nobody_answers_and_what_comes_back_after_a_yes(bench: Bench, box: Mailbox) -> None:
    """Both take a minute: a provider has so long to answer, and the mailbox is looked into so often."""
    silent, returned = fresh.words("silent"), fresh.words("returned")
    fleet = await Fleet.start(await bench.house(BUTLERS_IMAP_URL=box.url()))
    try:
        notification, card, _ = await asked(fleet, "telegram", silent)
        bounced, other, to = await asked(fleet, "email", returned)
        await fleet.outside.fault("telegram", "sendMessage", "accept_hang", match=silent, times=1)
        for one in (card, other):
            await fleet.outside.press(one, "Approve")
        message_id = await eventually(lambda: fleet.value(RECEIPT, bounced))
        box.put(REPORT.format(to=to, message_id=message_id).replace("\n", "\r\n").encode())
        for about, asking, said, words, status in (
            (bounced, other, returned, "Health's e-mail to Frank bounced", "bounced"),
            (notification, card, silent, "Delivery unconfirmed", "uncertain"),
        ):
            await heard(fleet, asking, said, words, within=120)
            end, ended_at, told_at = await ended(fleet, about)
            assert (end, told_at - ended_at < PROMISED) == (status, True)
    finally:
        await fleet.stop()
