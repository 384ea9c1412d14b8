"""The rows take exactly the ways of `tests.models.states.step`: random lives, each event given to both."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Final
from uuid import uuid4

import pytest

from messenger.channels.base import Receipt, SendFailed
from messenger.delivery import expire, settle
from messenger.delivery import stop as stop_delivery
from messenger.delivery.outcome import Ended, after
from messenger.maintenance import reaper
from messenger.storage import attempts, cards, queries
from messenger.storage import deliveries as store
from messenger.storage import transitions as unheld
from messenger.storage.deliveries import Claimed, Enqueued
from messenger.verdict import Blocked
from shared import answers
from shared.config.timings import STANDARD
from shared.db.pool import Connection, Record
from shared.model import LEGAL, Finding
from shared.storage import deliveries, notifications
from tests.integration.house import House
from tests.integration.workers import FREE, PAST, enqueue, friend, new_chat
from tests.integration.workers import admitted as admit
from tests.models.states import Delivery, Event, Part, What, step

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIVES: Final = 200
EVENTS: Final = 12
WATCH: Final = """
CREATE TABLE public.turns (was text, became text, PRIMARY KEY (was, became));
CREATE FUNCTION public.note_turn() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.turns VALUES (OLD.status, NEW.status) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER note_turn AFTER UPDATE ON messenger.deliveries FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION public.note_turn();
"""
CARD: Final = """
INSERT INTO messenger.deliveries (class, card_kind, channel, address)
VALUES ('card', 'channel_paused', 'telegram', $1) RETURNING id
"""
ID: Final = "SELECT id FROM messenger.deliveries WHERE notification_id = $1"
ROW: Final = "SELECT * FROM messenger.deliveries WHERE id = $1"
PARTS: Final = "SELECT status FROM messenger.parts WHERE delivery_id = $1 ORDER BY n"
DUE: Final = "UPDATE messenger.deliveries SET send_at = clock_timestamp() WHERE id = $1"
SILENT: Final = "UPDATE messenger.deliveries SET lease_until = clock_timestamp() WHERE id = $1"
LONG_AGO: Final = "UPDATE messenger.deliveries SET settled_at = clock_timestamp() - interval '1 hour' WHERE id = $1"
# It has time again.
IN_TIME: Final = """
WITH d AS (UPDATE messenger.deliveries SET not_after = clock_timestamp() + interval '1 day' WHERE notification_id = $1)
UPDATE shared.notifications SET not_after = clock_timestamp() + interval '1 day' WHERE id = $1
"""
# It stands in nobody's way any more.
ASIDE: Final = """
UPDATE messenger.deliveries SET send_at = 'infinity', lease_until = 'infinity', address = id::text WHERE id = $1
"""
# What the design allows and no statement does yet.
WITHOUT_A_STATEMENT: Final = frozenset(
    {("parked", "expired")},
)
LASTS: Final = timedelta(hours=1)
# What is asked of a life that stands so, beside what a random pick asks: most lives shall get somewhere.
NATURAL: Final[dict[str, tuple[What, ...]]] = {
    "queued": ("claim", "claim", "claim", "receipt", "withdrawn", "deadline"),
    "claimed": ("marked", "marked", "marked", "prepare_failed", "parked", "cancelled", "delayed", "lease_lost"),
    "sending": (
        "receipt", "receipt", "unknown", "lease_lost", "lease_lost", "rejected", "not_sent", "marked",
        "parked", "refused", "cancelled", "expired", "delayed",
    ),
    "uncertain": ("arrived", "again", "again", "leave", "repeat_due", "receipt", "not_sent", "rejected"),
    "parked": ("released", "released", "answered", "withdrawn"),
    "failed": ("reopened", "started"),
    "expired": ("reopened",),
    "cancelled": ("reopened",),
    "dead": ("reopened",),
    "abandoned": ("receipt",),
}  # fmt: skip
# How lives begin that chance seldom leads there: each of two parts, the first of them sent.
OPENINGS: Final[tuple[tuple[What, ...], ...]] = (
    ("lease_lost", "again", "receipt"),
    ("lease_lost", "leave", "receipt"),
    ("lease_lost", "rejected", "reopened"),
    ("lease_lost", "receipt"),
    ("unknown", "again", "claim", "marked", "lease_lost", "receipt"),
    ("lease_lost", "again", "claim", "receipt"),
    ("lease_lost", "again", "claim", "parked", "receipt", "released", "claim", "whole"),
    ("receipt", "bounced", "receipt"),
)
STOPS: Final[tuple[What, ...]] = ("parked", "refused", "cancelled", "expired", "delayed", "moved")
EVERY: Final[tuple[What, ...]] = (
    "claim", "renew", "lease_lost", "prepare_failed", "marked", "parked", "refused", "expired", "cancelled",
    "delayed", "moved", "whole", "receipt", "rejected", "not_sent", "unknown", "arrived", "again", "leave",
    "repeat_due", "withdrawn", "released", "answered", "reopened", "deadline", "restored", "started",
)  # fmt: skip
# A card is the Messenger's own, and nobody asks the owner about it.
OF_MESSAGES: Final = frozenset(
    {
        "withdrawn",
        "released",
        "answered",
        "reopened",
        "repeat_due",
        "arrived",
        "again",
        "leave",
        "bounced",
        "deadline",
        "restored",
    },
)
BY_NOBODY: Final = OF_MESSAGES - {"arrived", "again", "leave"} | {"claim", "lease_lost", "started"}
OF_THE_GATE: Final = frozenset(
    {"prepare_failed", "parked", "refused", "expired", "cancelled", "delayed", "moved", "whole"}
)
FAILURES: Final = {
    "rejected": SendFailed("provider_rejected", "no", proved_not_sent=True),
    "not_sent": SendFailed("unavailable", "no", proved_not_sent=True),
    "unknown": SendFailed("timeout", "no", proved_not_sent=False),
}


@dataclass(slots=True)
class Life:
    """One delivery in rows, and what `step` makes of it; times of the model are the lease's beginning, or its end."""

    house: House
    id: str
    notification_id: str | None
    kind: str
    random: Random
    model: Delivery
    sql: Connection
    claims: list[Claimed] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    async def live(self, opening: Sequence[What] = ()) -> str | None:
        """How it goes in rows otherwise than in the model, if it does."""
        for place in range(EVENTS):
            natural = NATURAL.get(self.model.status, EVERY)
            by_chance = self.random.choice(natural if self.random.random() < 0.75 else EVERY)
            what = opening[place] if place < len(opening) else by_chance
            event = self.event(what, newest=place < len(opening))
            if event is not None and (self.notification_id is not None or event.what not in OF_MESSAGES):
                async with self.house.context("messenger").db.work() as self.sql:
                    await self.tell_rows(event)
                found = await self.difference(event)
                if found is not None:
                    return found
        return None

    def event(self, what: What, *, newest: bool = False) -> Event | None:
        """Of the holder of a claim, mostly of the newest; none where there is nobody to speak."""
        if what == "deadline" and self.model.status == "parked":
            return None  # while it is parked only its question has a time
        if what in BY_NOBODY:
            return Event(what, 7.0 if what == "lease_lost" else 0.0)
        if what in {"arrived", "again", "leave"}:
            return Event(what, attempt=self.model.attempt - (0 if newest else self.random.choice((0, 0, 0, 1))))
        if not self.claims or (what in OF_THE_GATE and any(part.status == "sending" for part in self.model.parts)):
            return None  # whoever waits for an answer asks the gate nothing
        if what == "whole" and any(part.status != "sent" for part in self.model.parts):
            return None
        claimed = self.claims[-1] if newest or self.random.random() < 0.8 else self.random.choice(self.claims)
        if what == "receipt" and self.model.status == "claimed":
            claimed = self.claims[0]  # whoever holds it now has sent nothing yet
        first = next((n for n, part in enumerate(self.model.parts, 1) if part.status != "sent"), len(self.model.parts))
        word = self.random.choice(("provider_rejected", "unavailable")) if what == "prepare_failed" else "receipt"
        return Event(what, 0.0, claimed.fence, first, claimed.attempt, word)

    async def difference(self, event: Event) -> str | None:
        """What tells the rows from the model after this event."""
        self.told.append(f"{event.what} n={event.n} attempt={event.attempt} fence={event.fence}")
        stepped = step(self.model, event)
        if stepped is not None:
            self.model = stepped.delivery
        row = await self.house.row(ROW, self.id)
        parts = [part["status"] for part in await self.house.sql.fetch(PARTS, self.id)]
        rows = (row["status"], row["attempt"], row["fence"], parts)
        model = (self.model.status, self.model.attempt, self.model.fence, [part.status for part in self.model.parts])
        same = rows == model and (self.kind == "card" or row["repeated"] == self.model.repeats)
        return None if same else f"{self.kind}: {'; '.join(self.told)}: rows {rows}, step {model}"

    async def tell_rows(self, event: Event) -> None:
        claimed = next((one for one in self.claims if one.fence == event.fence), None)
        if event.what == "claim":
            await self.claim()
        elif event.what == "lease_lost":
            await self.house.sql.execute(SILENT, self.id)
            await reaper.reap(self.sql, STANDARD.lease)
        elif event.what == "started":
            row = await self.house.row(ROW, self.id)
            await cards.ask_refused(self.sql, row["address"], row["realm"], LASTS)
        elif claimed is not None:
            await self.holder(claimed, event)
            if event.what not in {"renew", "marked", "receipt"}:
                self.claims.remove(claimed)  # whoever has said this does nothing more
        elif self.notification_id is not None:
            await self.unheld(event, self.notification_id)

    async def claim(self) -> None:
        await self.house.sql.execute(FREE)
        await self.house.sql.execute(DUE, self.id)
        taken = await store.claim(self.sql, f"holder-{self.id}", {"telegram": 16}, STANDARD)
        assert [one.id for one in taken] in ([], [self.id])
        self.claims += taken

    async def holder(self, claimed: Claimed, event: Event) -> None:
        """What whoever holds it, or held it, writes down."""
        last = event.n == len(self.model.parts)
        match event.what:
            case "renew":
                await store.renew(self.sql, f"holder-{self.id}", [(self.id, claimed.fence)], STANDARD.lease)
            case "marked":
                await store.mark(self.sql, claimed, (event.n, f"sha{event.n}"), STANDARD.lease, None)
            case "prepare_failed":
                why = FAILURES["rejected" if event.word == "provider_rejected" else "not_sent"]
                ended = Ended(why, last, claimed.kind, claimed.attempt, 0.0)
                await settle.not_prepared(self.sql, claimed, event.n, after(ended))
            case "receipt":
                ended = Ended(Receipt(event.word), last, claimed.kind, claimed.attempt, 0.0)
                await settle.part_ended(self.sql, claimed, event.n, after(ended))
            case "rejected" | "not_sent" | "unknown":
                ended = Ended(FAILURES[event.what], last, claimed.kind, claimed.attempt, 0.0)
                await settle.part_ended(self.sql, claimed, event.n, after(ended))
            case "delayed":
                await store.delay(self.sql, claimed, "braked", None, STANDARD.braked_again)
            case "whole":
                await stop_delivery.nothing_follows(self.sql, claimed, whole=True)
            case _:
                await self.stopped(claimed, event.what)

    async def stopped(self, claimed: Claimed, what: str) -> None:
        row = await notifications.one(self.sql, self.notification_id) if self.notification_id else None
        if what == "moved":
            why = Blocked("moved", (Finding("moved", "It moved."),), row, address=new_chat())
        else:
            why = Blocked(what, (Finding(what, "So it is."),), row)  # type: ignore[arg-type]  # the rest of its names
        await stop_delivery.stopped(self.sql, claimed, why, self.house.context("messenger"))

    async def unheld(self, event: Event, notification_id: str) -> None:
        """What is done to what nobody holds."""
        match event.what:
            case "withdrawn" if not await deliveries.begun(self.sql, notification_id):
                await unheld.cancel(self.sql, notification_id)
            case "reopened" if not await deliveries.begun(self.sql, notification_id):
                await unheld.ask_again(self.sql, notification_id)
            case "deadline":
                await self.house.sql.execute(PAST, notification_id)
                async with self.house.context("messenger").db.work() as connection:
                    await expire.end_late(connection)
                await self.house.sql.execute(IN_TIME, notification_id)
            case "answered":
                await notifications.settle(
                    self.sql, notification_id, answers.failed(notification_id, "forbidden", "No.")
                )
                await unheld.close_answered(self.sql)
            case "restored":
                await unheld.make_uncertain(self.sql, notification_id)
            case "released":
                await store.enqueue(self.sql, released(await self.house.row(ROW, self.id), notification_id))
            case _:
                await self.doubted(event)

    async def doubted(self, event: Event) -> None:
        """What is said of, or done to, what may have arrived."""
        match event.what:
            case "arrived":
                await unheld.arrived(self.sql, self.id, event.attempt, "owner", LASTS)
            case "again":
                await unheld.again(self.sql, self.id, event.attempt, LASTS)
            case "leave":
                await unheld.leave(self.sql, self.id, event.attempt)
            case "bounced":
                await unheld.bounced(self.sql, self.id, "5.1.1")
            case "repeat_due":
                await self.house.sql.execute(LONG_AGO, self.id)
                for row in await queries.to_repeat(self.sql, STANDARD.owner_repeat):
                    if row["id"] == self.id:  # others that stand aside may be due as well by now
                        await unheld.again(self.sql, row["id"], row["attempt"], None)


def released(row: Record, notification_id: str) -> Enqueued:
    kind, channel, address, until = row["class"], row["channel"], row["address"], row["created_at"] + timedelta(days=1)
    return Enqueued(notification_id, kind, channel, address, "sandbox", until, "greeter", str(uuid4()))


def openings() -> list[tuple[What, ...]]:
    first: tuple[What, ...] = ("claim", "marked", "receipt")
    return [*((*first, "marked", *then) for then in OPENINGS), *((*first, stop) for stop in STOPS)]


async def born(house: House, sql: Connection, random: Random, parts: int = 0) -> Life:
    kind = "third_party" if parts else random.choice(("third_party", "third_party", "owner", "card"))
    notification_id = None
    if kind == "card":
        delivery_id = await house.sql.fetchval(CARD, new_chat())
    else:
        whom = {"contact_id": await friend(house)} if kind == "third_party" else {}
        notification_id = await admit(house, f"words {uuid4()}", **whom)
        await enqueue(house, notification_id)
        delivery_id = await house.sql.fetchval(ID, notification_id)
    total = parts or random.choice((1, 1, 2))
    await attempts.keep_parts(sql, delivery_id, [f"sha{n}" for n in range(1, total + 1)])
    return Life(house, delivery_id, notification_id, kind, random, Delivery(kind, (Part(),) * total), sql)


@pytest.mark.slow
async def test_the_rows_take_the_ways_of_step_and_no_other(still_house: House) -> None:
    await still_house.sql.execute(WATCH)
    wrong: list[str | None] = []
    for seed, opening in enumerate([*openings(), *[()] * LIVES]):
        async with still_house.context("messenger").db.work() as connection:
            life = await born(still_house, connection, Random(seed), 2 if opening else 0)
        wrong.append(await life.live(opening))
        await still_house.sql.execute(ASIDE, life.id)
    assert [found for found in wrong if found] == []
    seen = {(row["was"], row["became"]) for row in await still_house.sql.fetch("SELECT was, became FROM public.turns")}
    assert seen == LEGAL - WITHOUT_A_STATEMENT
