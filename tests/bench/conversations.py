"""What conversations cost: `python -m tests.bench.conversations`, the last table of `python -m tests.bench`.

A burst of a thousand messages of fifty contacts, and the owner's press in the middle of it; the way from the owner's
words to the first call of their session; and what a tool's result costs its caller that brings notices. The burst waits
at the provider until it is whole: for so long somebody else holds the poller's lease.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeAlias

import aiohttp
import asyncpg

from shared.db.dsn import DATABASE
from shared.postgres import server as postgres
from tests.bench.fleet import House, house
from tests.bench.measure import GREETER, OWNER, SANDBOX, Raw

PEOPLE, EACH, AT_ONCE = 50, 20, 16
FIRST: Final = 6_000_000_000
LATEST: Final = 120.0
ROUNDS, FEW, EIGHT = 600, 40, 8
PAUSE: Final = 0.05
Rows = list[tuple[str, str, str]]
Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

CONTACTS: Final = """
WITH made AS (INSERT INTO shared.contacts (name) SELECT 'Guest ' || n FROM generate_series(1, $2) n RETURNING id, name)
INSERT INTO shared.contact_info (contact_id, type, value, is_primary)
SELECT id, 'telegram', ($1 + split_part(name, ' ', 2)::bigint)::text, true FROM made
"""
TAKE_LEASE: Final = "UPDATE messenger.pollers SET holder = 'bench', lease_until = clock_timestamp() + interval '7 s'"
GIVE_BACK: Final = "DELETE FROM messenger.pollers"
POLLED: Final = "SELECT count(*) FROM messenger.pollers"
# Of a conversation, one that was routed before an earlier one.
LOOK: Final = """
SELECT count(*) AS stored, count(*) FILTER (WHERE route_until IS NULL) AS routed,
    (SELECT count(*) FROM switchboard.inbox i WHERE i.route_until IS NULL AND EXISTS (
        SELECT FROM switchboard.inbox before WHERE before.conversation = i.conversation
            AND before.route_until IS NOT NULL AND (before.received_at, before.id) < (i.received_at, i.id))) AS wrong
FROM switchboard.inbox WHERE text LIKE 'burst %'
"""
# What a poll brings is stored before the next one acknowledges it; the first poll's is where the clock begins.
SPENT: Final = """
SELECT count(*) FILTER (WHERE received_at > first) AS stored, extract(epoch FROM max(received_at) - min(first))::float8
    AS storing, extract(epoch FROM clock_timestamp() - min(first))::float8 AS since
FROM messenger.updates, (SELECT min(received_at) AS first FROM messenger.updates
    WHERE body #>> '{message,text}' LIKE 'burst %') f WHERE body #>> '{message,text}' LIKE 'burst %'
"""
# The numbers in the messages say in which order they were written.
MIXED: Final = """
SELECT count(*) FROM (SELECT split_part(text, ' ', 2)::int AS n, lag(split_part(text, ' ', 2)::int) OVER (
    PARTITION BY conversation ORDER BY received_at, id) AS before FROM switchboard.inbox WHERE text LIKE 'burst %') o
WHERE n < before
"""
PRESSED: Final = """
SELECT extract(epoch FROM handled_at - received_at)::float8 FROM messenger.updates WHERE body ? 'callback_query'
    AND handled_at IS NOT NULL
"""
NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"
FIRST_CALL: Final = """
SELECT extract(epoch FROM min(t.began_at))::float8 FROM shared.sessions s
JOIN shared.session_steps t ON t.session_id = s.id WHERE s.prompt = $1
"""
NOTICES: Final = """
INSERT INTO shared.notices (id, butler, source, kind, key, text, trust, priority, wakes, expires_at)
SELECT gen_random_uuid(), 'greeter', 'bench', 'made', n::text, 'Something happened, and it takes a line to say what.',
    'internal', 'normal', false, clock_timestamp() + interval '1 h' FROM generate_series(1, $1) n
"""
TELL: Final = "SELECT pg_notify('notices', 'greeter')"


@dataclass(frozen=True, slots=True)
class Person:
    """Who writes and presses in the sandbox."""

    session: aiohttp.ClientSession
    api: str

    async def does(self, what: str, **asked: object) -> Mapping[str, object]:
        """Ask the sandbox's API, and return what it answers."""
        async with self.session.post(f"{self.api}/api/{what}", json=asked) as response:
            answer: Mapping[str, object] = await response.json()
            if response.status != 200:  # the protocol's number
                raise RuntimeError(str(answer))
            return answer


async def until(found: Callable[[], Awaitable[object]], every: float = 0.02) -> object:
    """Return what is found, once it is."""
    async with asyncio.timeout(LATEST):
        while not (value := await found()):
            await asyncio.sleep(every)
    return value


async def written(sql: Sql, person: Person) -> None:
    """Write the burst while nobody polls, each person's messages in their order."""
    await until(lambda: sql.fetchval(POLLED))
    await sql.execute(TAKE_LEASE)
    room = asyncio.Semaphore(AT_ONCE)

    async def write(who: int) -> None:
        for n in range(EACH):
            async with room:
                await person.does("say", **{"as": FIRST + who, "text": f"burst {n} of {who}"})

    writing = asyncio.gather(*(write(who + 1) for who in range(PEOPLE)))
    while not writing.done():
        await sql.execute(TAKE_LEASE)
        await asyncio.sleep(0.2)
    await writing


async def burst(sql: Sql, person: Person, card: Mapping[str, object]) -> Rows:
    """Let the burst in, press the card's button in the middle of it, and wait until all is routed."""
    await sql.execute(CONTACTS, FIRST, PEOPLE)
    await written(sql, person)
    await sql.execute(GIVE_BACK)
    whole, wrong, pressed = PEOPLE * EACH, 0, False
    async with asyncio.timeout(LATEST):
        while True:
            now = await sql.fetchrow(LOOK)
            assert now is not None
            wrong += now["wrong"]
            if not pressed and now["stored"] > whole // 10:
                pressed = bool(await person.does("press", **card))
            if now["routed"] == whole:
                break
            await asyncio.sleep(0.1)  # to look costs as much as to route some
    spent = await sql.fetchrow(SPENT)
    assert spent is not None
    waited = float(str(await until(lambda: sql.fetchval(PRESSED))))
    wrong += await sql.fetchval(MIXED)
    return [
        (f"{whole:,} messages in a burst: stored", f"{spent['stored'] / spent['storing']:.0f} a second", "300"),
        ("the same: routed", f"{whole / spent['since']:.0f} a second", "100"),
        ("the same: out of order", str(wrong), "none"),
        ("a press in the middle of it", f"{waited * 1000:.0f} ms", "none waits"),
    ]


async def first_calls(sql: Sql, person: Person) -> Rows:
    """Write as the owner, and measure until the session has called its first tool."""
    found = []
    for n in range(5):
        words = f"Well, number {n}?"
        began = await sql.fetchval(NOW)
        await person.does("say", **{"as": int(OWNER), "text": words})
        called = await until(lambda words=words: sql.fetchval(FIRST_CALL, words))  # type: ignore[misc]  # its default
        found.append(float(str(called)) - began)
    return [("from the owner's message to the first call", f"{median(found):.2f} s", "1.5 s")]


async def results(sql: Sql, plain: Raw, told: Raw) -> Rows:
    """Measure a call that is answered at once: by who is shown no notices, by who could be, and with eight.

    A call after a pause takes longer than one after another, so that one with notices is compared with one after as
    long a pause.
    """

    async def milliseconds(raw: Raw) -> float:
        began = time.perf_counter()
        await raw.call("fax", "Hello.", "error")
        return (time.perf_counter() - began) * 1000

    without, nothing, rested, eight = (list[float]() for _ in range(4))
    for n in range(-20, ROUNDS):
        pairs = [(plain, without), (told, nothing)]
        for raw, into in pairs if n % 2 else reversed(pairs):
            spent = await milliseconds(raw)
            if n >= 0:
                into.append(spent)
    for _ in range(FEW):
        await asyncio.sleep(PAUSE)
        rested.append(await milliseconds(plain))
        await sql.execute(NOTICES, EIGHT)
        await sql.execute(TELL)
        await asyncio.sleep(PAUSE)
        eight.append(await milliseconds(told))
    if await sql.fetchval("SELECT count(*) FROM shared.notices WHERE state = 'queued'"):
        raise RuntimeError("Not all notices were shown.")
    more = median(nothing) / median(without) - 1
    return [
        ("a result with nothing waiting: more", f"{more:.1%}", "3 %"),
        ("a result with eight notices: more", f"{median(eight) - median(rested):.1f} ms", "2 ms"),
    ]


async def asked_for_a_yes(here: House, person: Person, raw: Raw) -> Mapping[str, object]:
    """Have a message wait for the owner's yes; return the press of its card."""
    await raw.call("telegram", "Is it you?", "pending_approval", recipient="7000000001")

    async def card() -> Mapping[str, object] | None:
        async with person.session.get(f"{here.url(SANDBOX)}/api/journal") as journal:
            lines = [json.loads(line) for line in (await journal.text()).splitlines()]
        found = next((line for line in lines if "reply_markup" in line["payload"]), None)
        if found is None:
            return None
        data = found["payload"]["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
        return {"as": int(OWNER), "chat": int(found["to"]), "message_id": int(found["provider_id"]), "data": data}

    press = await until(card)
    assert isinstance(press, Mapping)
    return press


async def measured(here: House) -> Rows:
    """Measure a fleet that is up."""
    server = postgres.running(here.home)
    if server is None:
        raise RuntimeError("The database is not running.")
    tokens = [here.butlers("token", "greeter", "--for", "1h", *more) for more in ((), ("--notices",))]
    sql = await asyncpg.connect(server.dsn_of(DATABASE))
    try:
        async with aiohttp.ClientSession() as session:
            plain, told = (Raw(session, f"{here.url(GREETER)}/mcp", token) for token in tokens)
            person = Person(session, here.url(SANDBOX))
            card = await asked_for_a_yes(here, person, plain)
            rows = await results(sql, plain, told)
            rows += await first_calls(sql, person)
            return [*await burst(sql, person, card), *rows]
    finally:
        with suppress(OSError):
            await sql.close()


def section() -> str:
    """Measure, and return the table."""
    with house() as here, here.up():
        rows = [("Conversations", "measured", "wanted"), *asyncio.run(measured(here))]
    return "\n".join(f"{what:44} {found:>16} {wanted:>12}" for what, found, wanted in rows)


if __name__ == "__main__":
    print(section())
