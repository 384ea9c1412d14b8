"""How a notify fares beside much of everything: `python -m tests.bench.growth`, some two minutes.

In one process it prints what a notify to the owner takes by how much is there already: past deliveries, standing rules,
contacts. Then how fast a queue of other people's messages drains, and the times of one butler's notify while another
floods. What was there is made by copies of rows that the fleet itself has made.
"""

import asyncio
import os
import time
from itertools import count
from typing import TypeAlias

import aiohttp
import asyncpg

from shared.db.dsn import DATABASE
from shared.postgres import server as postgres
from tests.bench.figures import Spread
from tests.bench.fleet import House, house
from tests.bench.idle import furnish
from tests.bench.load import paced
from tests.bench.measure import GREETER, Raw

FIRST_CHAT = 5_000_000_000_100_000
CHATS, EACH = 40, 5
CALLS = 40
PAST = """
WITH made AS (
    INSERT INTO shared.notifications SELECT r.* FROM generate_series(1, $1::int) AS k,
        (SELECT * FROM shared.notifications WHERE status = 'ok' ORDER BY created_at LIMIT 1) AS one,
        LATERAL jsonb_populate_record(NULL::shared.notifications, to_jsonb(one) || jsonb_build_object(
            'id', gen_random_uuid(), 'key', md5(random()::text), 'lineage', md5(random()::text),
            'request_sha', md5(random()::text), 'created_at', now() - k * interval '9 s')) AS r
    RETURNING id, created_at)
INSERT INTO messenger.deliveries SELECT r.* FROM made,
    (SELECT * FROM messenger.deliveries WHERE status = 'sent' ORDER BY created_at LIMIT 1) AS one,
    LATERAL jsonb_populate_record(NULL::messenger.deliveries, to_jsonb(one) || jsonb_build_object(
        'id', gen_random_uuid(), 'notification_id', made.id, 'lineage', made.id,
        'created_at', made.created_at, 'settled_at', made.created_at)) AS r
"""
RULES = """
INSERT INTO shared.approval_rules SELECT r.* FROM generate_series(1, $1::int) AS k,
    (SELECT * FROM shared.approval_rules ORDER BY created_at LIMIT 1) AS one,
    LATERAL jsonb_populate_record(NULL::shared.approval_rules, to_jsonb(one) || jsonb_build_object(
        'id', gen_random_uuid(), 'arg_constraints', jsonb_build_object('recipient', ($2::bigint + k)::text))) AS r
"""
CONTACTS = """
WITH made AS (
    INSERT INTO shared.contacts (name, roles) SELECT 'Contact ' || k, '{}' FROM generate_series(1, $1::int) AS k
    RETURNING id)
INSERT INTO shared.contact_info (contact_id, type, value) SELECT id, 'email', id || '@example.org' FROM made
"""
# Copies of a question that waits, all asked already: as many cards would be written otherwise.
PENDING = """
WITH made AS (
    INSERT INTO shared.notifications SELECT r.* FROM generate_series(1, $1::int) AS k,
        (SELECT * FROM shared.notifications WHERE status = 'pending_approval' ORDER BY created_at LIMIT 1) AS one,
        LATERAL jsonb_populate_record(NULL::shared.notifications, to_jsonb(one) || jsonb_build_object(
            'id', gen_random_uuid(), 'key', md5(k || ' ' || random()), 'lineage', md5(random()::text),
            'request_sha', md5(random()::text))) AS r
    RETURNING id), asked AS (
    INSERT INTO shared.pending_actions SELECT r.* FROM made,
        (SELECT * FROM shared.pending_actions WHERE status = 'pending' ORDER BY requested_at LIMIT 1) AS one,
        LATERAL jsonb_populate_record(NULL::shared.pending_actions, to_jsonb(one) || jsonb_build_object(
            'id', gen_random_uuid(), 'notification_id', made.id)) AS r
    RETURNING id)
INSERT INTO messenger.deliveries SELECT r.* FROM asked,
    (SELECT * FROM messenger.deliveries WHERE action_id IS NOT NULL AND status = 'sent' LIMIT 1) AS one,
    LATERAL jsonb_populate_record(NULL::messenger.deliveries, to_jsonb(one) || jsonb_build_object(
        'id', gen_random_uuid(), 'action_id', asked.id)) AS r
"""
WAITING = "SELECT count(*) FROM messenger.deliveries WHERE status IN ('queued', 'claimed', 'sending')"
ASKED = "SELECT EXISTS (SELECT FROM messenger.deliveries WHERE action_id IS NOT NULL AND status = 'sent')"
Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def curves(sql: Sql, raw: Raw) -> list[str]:
    """The median of a notify to the owner, and how many times the first of them it is, by what is there."""
    words, rows = count(), list[str]()
    first: float | None = None

    async def told(_: int) -> None:
        await raw.call("telegram", f"growth {next(words)}", "ok")

    await paced(told, 1, 20)
    steps: list[tuple[str, str, tuple[int, ...]]] = [
        ("nothing but itself", "", ()),
        ("1,000 past deliveries", PAST, (1_000,)),
        ("100,000 past deliveries", PAST, (99_000,)),
        ("and 100,000 contacts", CONTACTS, (100_000,)),
        ("and 100 standing rules", RULES, (99, FIRST_CHAT)),
        ("and 1,000 standing rules", RULES, (900, FIRST_CHAT + 1_000)),
        ("and 10,000 standing rules", RULES, (9_000, FIRST_CHAT + 2_000)),
        ("and 10,000 that wait for approval", PENDING, (10_000,)),
    ]
    for name, statement, arguments in steps:
        if statement:
            await sql.execute(statement, *arguments)
            await sql.execute("ANALYZE")
        found = (await paced(told, 1, CALLS)).times.median
        first = first or found
        rows.append(f"| {name} | {found:.2f} | {found / first:.2f} |")
    return rows


async def drained(here: House, sql: Sql, raw: Raw) -> float:
    """Deliveries a second of a queue that waited behind a brake; to forty chats, sixteen at once."""
    here.butlers("brake", "on", "--butler", "b0")
    for n in range(EACH):
        await asyncio.gather(
            *(raw.call("telegram", f"drain {n}", "queued", str(FIRST_CHAT + k)) for k in range(1, CHATS + 1))
        )
    here.butlers("brake", "off", "--butler", "b0")
    before, began = await sql.fetchval(WAITING), time.perf_counter()
    while await sql.fetchval(WAITING):
        await asyncio.sleep(0.02)
    return float(before / (time.perf_counter() - began))


async def until_asked(sql: Sql) -> None:
    """Wait until the owner has the card of what waits, which is then copied with it."""
    async with asyncio.timeout(30):
        while not await sql.fetchval(ASKED):
            await asyncio.sleep(0.05)


async def beside_a_flood(one: Raw, other: Raw) -> tuple[Spread, Spread]:
    """The times of one butler's notify by itself, and while another tells the owner eight things at once."""
    words, over = count(), asyncio.Event()

    async def told(_: int) -> None:
        await one.call("telegram", f"calm {next(words)}", "ok")

    async def floods() -> None:
        while not over.is_set():
            await other.call("telegram", f"flood {next(words)}", "ok", str(FIRST_CHAT + 1 + next(words) % CHATS))

    alone = (await paced(told, 1, CALLS * 2)).times
    flood = [asyncio.create_task(floods()) for _ in range(8)]
    beside = (await paced(told, 1, CALLS * 2)).times
    over.set()
    await asyncio.gather(*flood)
    return alone, beside


async def measured(here: House) -> str:
    """Measure a fleet of two butlers that is up, and return the tables."""
    server = postgres.running(here.home)
    if server is None:
        raise RuntimeError("The database is not running.")
    here.butlers("rules", "add", "--recipient", str(FIRST_CHAT))
    sql = await asyncpg.connect(server.dsn_of(DATABASE))
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            raws = [
                Raw(session, f"{here.url(GREETER + n)}/mcp", here.butlers("token", f"b{n}", "--for", "1h"))
                for n in range(2)
            ]
            await sql.execute(RULES, CHATS, FIRST_CHAT)
            rate = await drained(here, sql, raws[0])
            await raws[0].call("telegram", "waits", "pending_approval", str(FIRST_CHAT - 1))
            await until_asked(sql)
            alone, beside = await beside_a_flood(*raws)
            rows = await curves(sql, raws[0])
    finally:
        await sql.close()
    table = ["| a notify to the owner beside | ms, median | times the first |", "| --- | ---: | ---: |", *rows]
    flood = f"alone {alone.median} and {alone.p99} ms, beside a flood {beside.median} and {beside.p99} ms"
    told = [
        f"A queue of {CHATS * EACH} drains at {rate:.0f} a second, limits off.",
        f"One butler's notify, median and p99: {flood}, {beside.p99 / alone.p99:.1f} times the p99.",
    ]
    return "\n\n".join(["### Growth, in one process", "\n".join(table), *told])


def section() -> str:
    """Start a fleet, measure, and return the figures as Markdown."""
    before = os.getloadavg()[0]
    with house() as here:
        furnish(here, 2)
        with here.up("--fleet", "fleet"):
            found = asyncio.run(measured(here))
    return f"{found}\n\nLoad average before {before:.2f}, after {os.getloadavg()[0]:.2f}."


if __name__ == "__main__":
    print(section())
