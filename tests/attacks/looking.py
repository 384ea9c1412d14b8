"""Verbs that look where nothing may be found, and those that make what only a stolen secret could make."""

import base64
import hashlib
import hmac
import stat
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, cast
from uuid import UUID

from tests.attacks.doors import rpc
from tests.attacks.world import Arguments, Seen, World
from tests.rig.fleet import DAEMONS

COLUMNS: Final = """
SELECT format('SELECT count(*) FROM %I.%I t WHERE t::text LIKE ANY ($1::text[])', table_schema, table_name)
FROM information_schema.tables WHERE table_schema = $1 AND table_type = 'BASE TABLE'
"""
DECIDING: Final = ("approve", "deny", "decide", "rule", "contact_", "brake", "token", "sign", "resolve", "edit")


async def look(world: World, given: Arguments) -> Seen:
    """How often `text` stands in the logs, metrics, process titles, home or database; and how many secrets do.

    Of `modes` it is how many of a daemon's key files somebody else may read.
    """
    where, text = str(given["where"]), str(given["text"])
    if where == "modes":
        folder = world.fleet.house.home / "keys" / str(given["name"])
        wide = [path.name for path in (folder, *folder.iterdir()) if stat.S_IMODE(path.stat().st_mode) & 0o077]
        return {"found": len(wide), "text": ""}
    if where == "database":
        return await _in_the_database(world, str(given["schema"]), text)
    pieces = [piece async for piece in _read(world, where)]
    found = sum(piece.count(text) for piece in pieces)
    secrets = sum(secret in piece for piece in pieces for secret in world.secrets)
    return {"found": found, "secrets": secrets, "text": ""}


async def _read(world: World, where: str) -> AsyncIterator[str]:
    if where == "metrics":
        for name in DAEMONS:
            async with world.http.get(f"{world.url(name)}/metrics") as answer:
                yield await answer.text()
        return
    for piece in _titles(world) if where == "titles" else _files(world, where):
        yield piece


def _titles(world: World) -> Iterator[str]:
    for process in world.fleet.started:
        yield Path(f"/proc/{process.pid}/cmdline").read_text(errors="replace")


def _files(world: World, where: str) -> Iterator[str]:
    house = world.fleet.house
    if where == "logs":
        folders = [house.folder / "logs"]
        keys: Sequence[str] = ()
    else:
        # The sandbox is the outside, and keys are where keys are kept.
        folders, keys = [house.home], ("sandbox", "keys")
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not set(path.relative_to(folder).parts) & set(keys):
                yield path.read_text(errors="replace")


async def _in_the_database(world: World, schema: str, text: str) -> Seen:
    wanted = [f"%{piece}%" for piece in (text, *world.secrets)]
    statements = [str(row[0]) for row in await world.fleet.sql(COLUMNS, schema)]
    found = sum([int(str(await world.fleet.value(statement, wanted))) for statement in statements])
    return {"found": found, "secrets": 0, "text": ""}


async def button(world: World, given: Arguments) -> Seen:
    """`button` and `tag`: what a holder of the secret of `key` makes over these fields as the product makes its own."""
    mac = hmac.new(world.keys(str(given["key"])).secret, digestmod=hashlib.sha256)
    for field in cast("Sequence[object]", given["fields"]):
        raw = str(field).encode()
        mac.update(len(raw).to_bytes(8, "big") + raw)
    tag = _short(mac.digest()[:16])
    world.known |= {"tag": tag, "button": f"a1:{_short(UUID(str(given['action'])).bytes)}:{given['verb']}:{tag}"}
    return {"text": ""}


def _short(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


async def tools(world: World, given: Arguments) -> Seen:
    """The names a client is shown, and those among them that sound as if they decided."""
    answered = await rpc(world, {"to": given["to"], "token": given["token"], "method": "tools/list"})
    body = cast("Mapping[str, Mapping[str, Sequence[Mapping[str, object]]]]", answered["answer"])
    names = sorted(str(tool["name"]) for tool in body["result"]["tools"])
    return {"tools": names, "deciding": [name for name in names if any(word in name for word in DECIDING)], "text": ""}


async def fault(world: World, given: Arguments) -> Seen:
    """Something goes wrong at the provider, as the sandbox plays it, with whatever has `match` in its text."""
    how = {name: given[name] for name in ("times", "match")}
    await world.fleet.outside.fault(str(given["channel"]), str(given["stage"]), str(given["fault"]), **how)
    return {"text": ""}


VERBS: Final = {"look": look, "button": button, "tools": tools, "fault": fault}
