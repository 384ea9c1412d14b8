"""Rate limits: token buckets as rows, shared by all Messengers and refilled by the database's clock.

A bucket is one moment, `free_at`: from then on the next message may leave. Spending moves it on by one span, never
further back than lets a full burst through; a provider's Retry-After moves it too.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Final

from shared.channels import CHANNELS
from shared.channels.realms import SANDBOX, Configured
from shared.config.settings import Settings
from shared.db.pool import Connection


def limited(settings: Settings, set_up: Configured) -> frozenset[str]:
    """Return the channels whose messages are counted: the live ones, unless the settings say all or none."""
    if settings.rate_limits is None:
        return frozenset(channel for channel, realm in set_up.realms.items() if realm != SANDBOX)
    return frozenset(set_up.realms) if settings.rate_limits else frozenset()


# Locked in the order of their keys, last of all rows; a statement that waited for the lock reads the clock after it.
SPEND: Final = """
INSERT INTO messenger.rate_limits AS r (key, burst, every, free_at)
SELECT key, burst, every, clock_timestamp() - (burst - 2) * every
FROM unnest($1::text[], $2::int[], $3::interval[]) AS b(key, burst, every) ORDER BY key
ON CONFLICT (key) DO UPDATE SET burst = EXCLUDED.burst, every = EXCLUDED.every,
    free_at = greatest(r.free_at, clock_timestamp() - (EXCLUDED.burst - 1) * EXCLUDED.every) + EXCLUDED.every
WHERE r.free_at <= clock_timestamp() RETURNING key
"""


async def spend(connection: Connection, channel: str, address: str, origin: str, counted: Collection[str]) -> bool:
    """Spend one message from its buckets, and return whether it may leave now; `origin` is the butler it comes from.

    On False the caller's transaction must not be committed. What is not counted spends nothing.
    """
    if channel not in counted:
        return True
    asked = CHANNELS[channel].limits(address, origin)
    bursts, spans = [one.burst for one in asked.values()], [one.every for one in asked.values()]
    return len(await connection.fetch(SPEND, list(asked), bursts, spans)) == len(asked)


async def first_in(connection: Connection, key: str, every: timedelta) -> bool:
    """Return whether nothing was let through under this key for so long; if so, this is what is let through."""
    return bool(await connection.fetch(SPEND, [key], [1], [every]))


def keys(channel: str, address: str, origin: str) -> list[str]:
    """Return the keys of the buckets that a butler's message to this address spends from."""
    return list(CHANNELS[channel].limits(address, origin))


FREE_AT: Final = """
SELECT extract(epoch FROM max(free_at))::float FROM messenger.rate_limits
WHERE key = ANY ($1::text[]) AND free_at > clock_timestamp()
"""


async def free_at(connection: Connection, channel: str, address: str, origin: str) -> float | None:
    """Return from when on a butler's next to this address may leave (seconds since 1970), None if that is past."""
    found: float | None = await connection.fetchval(FREE_AT, keys(channel, address, origin))
    return found


# Two that are told at once look one after the other: each must see what the first was told.
QUEUE_UP: Final = """
INSERT INTO messenger.rate_limits AS r (key, free_at) VALUES ($1, '-infinity')
ON CONFLICT (key) DO UPDATE SET free_at = r.free_at
"""
OBEY: Final = """
INSERT INTO messenger.rate_limits AS r (key, free_at, told_at) VALUES ($1, clock_timestamp() + $2, clock_timestamp())
ON CONFLICT (key) DO UPDATE SET free_at = greatest(r.free_at, EXCLUDED.free_at), told_at = EXCLUDED.told_at
"""
TOLD_OTHERWISE: Final = """
SELECT EXISTS (SELECT FROM messenger.rate_limits
    WHERE starts_with(key, $1 || ':') AND key <> $2 AND told_at > clock_timestamp() - $3::interval)
"""


async def obey(connection: Connection, channel: str, address: str, wait: timedelta, together: timedelta) -> None:
    """Let nothing go to this address before the wait is over.

    If another address was told the same within `together`, nothing goes to any on that channel.
    """
    key = f"{channel}:{address}"
    await connection.execute(QUEUE_UP, channel)
    await connection.execute(OBEY, key, wait)
    if await connection.fetchval(TOLD_OTHERWISE, channel, key, together):
        await connection.execute(OBEY, channel, wait)


# A bucket that is full again says nothing; nor does one further off than its span, or than a provider's word can
# count ($2): it was written by a wrong clock.
FORGET: Final = """
DELETE FROM messenger.rate_limits WHERE key IN (
    SELECT key FROM messenger.rate_limits WHERE free_at < clock_timestamp() - burst * every - $1::interval
        OR free_at > clock_timestamp() + CASE WHEN told_at BETWEEN clock_timestamp() - $2::interval
            AND clock_timestamp() THEN $2::interval ELSE every END
    LIMIT 1000 FOR UPDATE SKIP LOCKED)
"""


async def forget(connection: Connection, kept: timedelta, longest: timedelta) -> None:
    """Drop the rows of addresses that nothing was sent to for a while."""
    await connection.execute(FORGET, kept, longest)
