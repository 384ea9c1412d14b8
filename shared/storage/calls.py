"""Calls: which butler may call which other, and which is the default, as `butlers migrate` writes from butler.toml."""

from collections.abc import Mapping, Sequence

from shared.db.pool import Connection

FORGET = "DELETE FROM switchboard.calls"
ALLOW = "INSERT INTO switchboard.calls (butler, target) VALUES ($1, $2)"


async def write(connection: Connection, allowed: Mapping[str, Sequence[str]]) -> None:
    """Let each butler call those of its list, and nobody else; others wait for the end of this unit of work."""
    await connection.execute(FORGET)
    await connection.executemany(ALLOW, [(name, target) for name, targets in allowed.items() for target in targets])


FORGET_DEFAULT = "DELETE FROM switchboard.default_butler"
DEFAULT = "INSERT INTO switchboard.default_butler (butler) VALUES ($1)"


async def write_default(connection: Connection, name: str | None) -> None:
    """Let what names no butler go to this one, or to nobody in particular."""
    await connection.execute(FORGET_DEFAULT)
    if name is not None:
        await connection.execute(DEFAULT, name)


MAY = "SELECT EXISTS (SELECT FROM switchboard.calls WHERE butler = $1 AND target = $2)"


async def may(connection: Connection, butler: str, target: str) -> bool:
    """Return whether that butler may call the other."""
    return bool(await connection.fetchval(MAY, butler, target))
