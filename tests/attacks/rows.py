"""Verbs at the database: statements by the login of a daemon, and what is so before an attack begins."""

import asyncio
from collections.abc import Mapping
from typing import Final, cast

import asyncpg

from shared import identity
from tests.attacks.world import Arguments, Seen, World
from tests.rig.waiting import LONGEST

STATUS: Final = "SELECT status FROM shared.notifications WHERE id = $1::uuid"
LAST_LINE: Final = (
    "SELECT event_type FROM shared.approval_events WHERE notification_id = $1::uuid ORDER BY seq DESC LIMIT 1"
)


async def sql(world: World, given: Arguments) -> Seen:
    """A statement by the login of `as`; `state` is the database's word, empty for done, `rows` how many it answered.

    One that is neither done nor refused in time is a TimeoutError, and so a breach.
    """
    connection = await world.login(str(given["as"]))
    try:
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


async def contact(world: World, given: Arguments) -> Seen:
    """Somebody the owner knows, by name and addresses; the id is kept as `into`, else `contact`."""
    entries = cast("Mapping[str, object]", {key: given[key] for key in ("telegram", "email") if key in given})
    fleet = world.fleet
    async with fleet.db.transaction():
        made = await identity.add_contact(fleet.db, str(given.get("name", "Anna")), [])
        for kind, value in entries.items():
            await identity.set_identifier(fleet.db, made, kind, str(value), primary=True)
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


VERBS: Final = {"sql": sql, "change": change, "realm_back": realm_back, "contact": contact, "stands": stands}
