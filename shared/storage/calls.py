"""Calls: which butler may call which other, which is the default, which the classifier, and whose popups open.

`butlers migrate` writes them from butler.toml.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

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


FORGET_CLASSIFIER = "DELETE FROM switchboard.classifier"
CLASSIFIER = "INSERT INTO switchboard.classifier (butler, descriptions) VALUES ($1, $2)"


async def write_classifier(connection: Connection, name: str | None, descriptions: Mapping[str, str]) -> None:
    """Let the runtime of this butler be asked who takes a message, by what each butler is for; or nobody's."""
    await connection.execute(FORGET_CLASSIFIER)
    if name is not None:
        await connection.execute(CLASSIFIER, name, descriptions)


FORGET_POPUPS = "DELETE FROM shared.popups"
LET_POP_UP = "INSERT INTO shared.popups (butler) VALUES ($1)"


async def write_popups(connection: Connection, names: Sequence[str]) -> None:
    """Let the popups of these butlers open on the owner's screen, and nobody else's."""
    await connection.execute(FORGET_POPUPS)
    await connection.executemany(LET_POP_UP, [(name,) for name in names])


MAY = "SELECT EXISTS (SELECT FROM switchboard.calls WHERE butler = $1 AND target = $2)"


async def may(connection: Connection, butler: str, target: str) -> bool:
    """Return whether that butler may call the other."""
    return bool(await connection.fetchval(MAY, butler, target))


FORGET_REMOVED = """
DELETE FROM switchboard.butlers WHERE kind = 'butler' AND name <> ALL ($1::text[])
    AND (status = 'gone' OR last_seen_at < clock_timestamp() - $2::interval)
"""


async def forget_removed(connection: Connection, there: Sequence[str], silent: timedelta) -> None:
    """Forget the butlers that are not there any more, so that nothing goes to them."""
    await connection.execute(FORGET_REMOVED, list(there), silent)
