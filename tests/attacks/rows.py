"""Verbs at the database: statements by the login of a daemon, and what is so before an attack begins."""

import asyncio
import time
from collections.abc import Mapping
from typing import Final, cast

import asyncpg

from shared.db.dsn import dsn_as
from shared.storage import contacts
from tests.attacks.doors import notify
from tests.attacks.world import Arguments, Seen, World
from tests.rig.waiting import LONGEST

HINTS: Final = "SELECT pg_notify($1, n::text) FROM generate_series(1, 200000) n"
LONGEST_FLOOD: Final = 120
STATUS: Final = "SELECT status FROM shared.notifications WHERE id = $1::uuid"
LAST_LINE: Final = (
    "SELECT event_type FROM shared.approval_events WHERE notification_id = $1::uuid ORDER BY seq DESC LIMIT 1"
)


async def sql(world: World, given: Arguments) -> Seen:
    """A statement by the login of `as`; `state` is the database's word, empty for done, `rows` how many it answered.

    One that is neither done nor refused in time is a TimeoutError, and so a breach.
    """
    try:
        connection = await world.login(str(given["as"]))
        if not str(given["run"]).startswith("SELECT"):
            done = await connection.execute(str(given["run"]), timeout=LONGEST)
            return {"state": "", "refused": False, "rows": 0, "text": done, "value": None}
        found = await connection.fetch(str(given["run"]), timeout=LONGEST)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as refused:
        state = getattr(refused, "sqlstate", None) or type(refused).__name__
        return {"state": state, "refused": True, "rows": 0, "text": str(refused), "value": None}
    value = found[0][0] if found and len(found[0]) else None
    text = "\n".join(str(tuple(row.values())) for row in found)
    return {"state": "", "refused": False, "rows": len(found), "text": text, "value": value}


async def hints(world: World, given: Arguments) -> Seen:
    """Wake hints on `topic` as fast as `sessions` of the login `as` can send them: of each `times` 200,000."""
    name, topic, times = str(given["as"]), str(given["topic"]), int(str(given["times"]))
    dsn = dsn_as(world.fleet.house.dsn, name, world.keys(name).password)

    async def send() -> None:
        session = await asyncpg.connect(dsn)
        try:
            for _ in range(times):
                await session.execute(HINTS, topic, timeout=LONGEST_FLOOD)
        finally:
            session.terminate()

    await asyncio.gather(*(send() for _ in range(int(str(given["sessions"])))))
    return {"text": ""}


async def asked(world: World, given: Arguments) -> Seen:
    """How long it takes until a question of `by` is with the owner, kept as `usual` where nothing is said of it.

    Else `soon` is whether it takes a few seconds more than the usual at most.
    """
    since = time.monotonic()
    arguments = {"recipient": world.known["friend"], "message": f"{world.known['nonce']} {since}"}
    answered = await notify(world, {"by": given["by"], "arguments": arguments})
    if answered["outcome"] != "pending_approval":
        return {**answered, "soon": False}
    action = cast("Mapping[str, object]", answered["answer"]).get("action_id")
    await world.fleet.outside.card(str(action), LONGEST_FLOOD)
    took = time.monotonic() - since
    usual = float(str(world.known.setdefault("usual", took)))
    return {**answered, "soon": took < 5 + 5 * usual, "text": f"{took:.1f} s, usually {usual:.1f} s"}


async def overheard(world: World, given: Arguments) -> Seen:
    """How many hints on `topic` the login `as` hears, while `by` tells the owner something."""
    session, heard = await world.login(str(given["as"])), list[str]()
    await session.add_listener(str(given["topic"]), lambda *said: heard.append(str(said[-1])))
    answered = await notify(world, {"by": given["by"]})
    assert answered["outcome"] == "ok", answered
    await session.fetchval("SELECT 1")
    await session.execute("UNLISTEN *")
    return {"heard": len(heard), "text": ""}


async def change(world: World, given: Arguments) -> Seen:
    """Statements of somebody who owns the database, and of the owner's own tools: several, separated by semicolons."""
    for statement in str(given["run"]).split(";"):
        answered = await sql(world, {"as": "superuser", "run": statement})
        if answered["state"]:
            return answered
    return {"state": "", "text": ""}


async def realm_back(world: World, given: Arguments) -> Seen:
    """The realm of the chats is the sandbox's once more."""
    return await sql(world, {"as": "superuser", "run": "UPDATE shared.channels SET realm = 'sandbox'"})


NAMED = "UPDATE shared.contacts SET name = $2 WHERE id = $1::text::uuid"


async def contact(world: World, given: Arguments) -> Seen:
    """Somebody the owner knows, by name and addresses; the id is kept as `into`, else `contact`."""
    entries = cast("Mapping[str, object]", {key: given[key] for key in ("telegram", "email") if key in given})
    fleet = world.fleet
    async with fleet.db.transaction():
        made = await contacts.add_contact(fleet.db, "Somebody", [])
        # As by SQL, which takes names that no surface takes.
        await fleet.db.execute(NAMED, made, str(given.get("name", "Anna")))
        for kind, value in entries.items():
            await contacts.add_address(fleet.db, made, kind, str(value), primary=True)
    world.known[str(given.get("into", "contact"))] = made
    return {"id": made, "text": ""}


async def stands(world: World, given: Arguments) -> Seen:
    """How a notification stands once it is one of `until`, or when thirty seconds have passed."""
    wanted, status = cast("list[str]", given.get("until", [])), None
    try:
        async with asyncio.timeout(LONGEST):
            while (status := await world.fleet.value(STATUS, str(given["notification"]))) not in wanted:
                await asyncio.sleep(0.03)
    except TimeoutError:
        pass
    audited = await world.fleet.value(LAST_LINE, str(given["notification"]))
    return {"outcome": status, "audited": audited, "text": ""}


VERBS: Final = {
    "hints": hints,
    "asked": asked,
    "overheard": overheard,
    "sql": sql,
    "change": change,
    "realm_back": realm_back,
    "contact": contact,
    "stands": stands,
}
