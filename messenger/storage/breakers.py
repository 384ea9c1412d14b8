"""The circuit breakers: which channels are paused, as rows that all Messengers share; only writer of their table."""

from datetime import timedelta
from typing import Final

from messenger.channels.base import Receipt, SendFailed
from messenger.storage import cards
from shared.config.timings import Timings
from shared.db.pool import Connection, Record, tell
from shared.display.visible import visible
from shared.telemetry.logs import logger

log = logger("messenger.storage.breakers")

# So many failures in a row, of whichever messages, pause their channel.
MOST_FAILURES: Final = 5


FAILED: Final = """
INSERT INTO messenger.circuit_breakers AS p (channel, reason, detail) VALUES ($1, 'unreachable', $2)
ON CONFLICT (channel) DO UPDATE SET detail = $2,
    failures = CASE WHEN p.first_failed_at > clock_timestamp() - $3::interval THEN p.failures + 1 ELSE 1 END,
    first_failed_at = CASE WHEN p.first_failed_at > clock_timestamp() - $3::interval THEN p.first_failed_at
        ELSE clock_timestamp() END,
    told_at = CASE WHEN p.first_failed_at > clock_timestamp() - $3::interval THEN p.told_at END
WHERE p.since IS NULL RETURNING failures
"""
WORKED: Final = "DELETE FROM messenger.circuit_breakers WHERE channel = $1 AND since IS NULL"


async def heed(connection: Connection, channel: str, result: Receipt | SendFailed, timings: Timings) -> None:
    """Apply an attempt's end to its whole channel, in the transaction that settles the attempt.

    A word on the message itself, a receipt or a refusal, shows that the channel works; what is put off shows nothing.
    """
    if isinstance(result, Receipt) or result.reason == "provider_rejected":
        await connection.execute(WORKED, channel)
    elif result.reason == "unauthorized":
        await _begin(connection, channel, result, timings)
    elif result.is_down or not result.proved_not_sent:
        said = visible(result.message)[:500]
        failures = await connection.fetchval(FAILED, channel, said, timings.failures_within)
        if failures is not None and failures >= MOST_FAILURES:
            await _begin(connection, channel, result, timings)


# Until something has gone out the owner hears of the next pause soon after only if its reason is another: that
# somebody must act is always told.
PAUSE: Final = """
INSERT INTO messenger.circuit_breakers AS p (channel, reason, detail, since, next_probe_at)
VALUES ($1, $2, $3, clock_timestamp(), clock_timestamp() + $4::interval)
ON CONFLICT (channel) DO UPDATE SET reason = $2, detail = $3, since = EXCLUDED.since,
    next_probe_at = EXCLUDED.next_probe_at, probes = p.probes + (p.next_probe_at IS NOT NULL)::int,
    told_at = CASE WHEN p.first_failed_at > clock_timestamp() - $5::interval
        AND $2 IN (p.reason, 'unreachable') THEN p.told_at END
WHERE p.since IS NULL RETURNING channel
"""


async def _begin(connection: Connection, channel: str, result: SendFailed, timings: Timings) -> None:
    why = (reason_of(result), visible(result.message)[:500])
    if await connection.fetchval(PAUSE, channel, *why, timings.probe, timings.failures_within) is not None:
        log.warning("the channel pauses itself", channel=channel, why=result.message)
        await tell(connection, "cards")


def reason_of(result: SendFailed) -> str:
    """Return why a channel pauses: its login is refused, or nobody answers."""
    return "unauthorized" if result.reason == "unauthorized" else "unreachable"


STANDS: Final = "SELECT EXISTS (SELECT FROM messenger.circuit_breakers WHERE channel = $1 AND since IS NOT NULL)"


async def stands(connection: Connection, channel: str) -> bool:
    """Return whether the channel is paused, so that nothing of it is claimed at the moment."""
    return bool(await connection.fetchval(STANDS, channel))


# A connection that comes back by itself at once is not worth a message; one that is lost again is.
TELL: Final = """
UPDATE messenger.circuit_breakers p SET told_at = clock_timestamp(),
    waiting = (SELECT count(*) FROM messenger.deliveries d WHERE d.channel = p.channel AND d.status = 'queued')
WHERE since IS NOT NULL AND told_at IS NULL AND (reason = 'unauthorized' OR probes > 1) RETURNING channel
"""


async def tell_owner(connection: Connection) -> int:
    """Queue the notice about each pause that the owner has not heard of; return how many."""
    told = [row["channel"] for row in await connection.fetch(TELL)]
    for channel in told:
        await cards.tell_elsewhere(connection, channel)
    return len(told)


PAUSED: Final = """
SELECT channel, reason, detail, since, waiting, next_probe_at FROM messenger.circuit_breakers
WHERE since IS NOT NULL ORDER BY channel
"""


async def paused(connection: Connection) -> list[Record]:
    """Return each paused channel: channel, reason, detail, since, waiting, next_probe_at."""
    return list(await connection.fetch(PAUSED))


# A notice that did not go, since the pause was over for a moment, is told again at the next pause.
UNTOLD: Final = "UPDATE messenger.circuit_breakers SET told_at = NULL WHERE channel <> $1 AND since IS NULL"


async def told_nothing(connection: Connection, channel: str) -> None:
    """Note that a notice by this channel did not go: the next pause of another channel is told again."""
    await connection.execute(UNTOLD, channel)


PROBE_NOW: Final = """
UPDATE messenger.circuit_breakers SET next_probe_at = clock_timestamp(), probes = 0 WHERE since IS NOT NULL
"""


async def probe_now(connection: Connection) -> None:
    """Let every paused channel be probed at once."""
    await connection.execute(PROBE_NOW)


# Of several Messengers one takes the probe. A login that is refused is tried ever more seldom, up to $2.
TAKE_PROBE: Final = """
UPDATE messenger.circuit_breakers SET probes = probes + 1, next_probe_at = clock_timestamp()
    + CASE reason WHEN 'unauthorized' THEN least($2::interval, $1::interval * 2 ^ least(probes + 1, 10))
        ELSE $1::interval END
WHERE since IS NOT NULL AND (next_probe_at <= clock_timestamp() OR next_probe_at > clock_timestamp()
    + CASE reason WHEN 'unauthorized' THEN $2::interval ELSE $1::interval END) RETURNING channel
"""


async def take_probes(connection: Connection, every: timedelta, longest: timedelta) -> list[str]:
    """Take the channels that are this Messenger's to probe now, and return them."""
    return [row["channel"] for row in await connection.fetch(TAKE_PROBE, every, longest)]


STILL: Final = """
UPDATE messenger.circuit_breakers SET reason = $2, detail = $3,
    told_at = CASE WHEN $2 IN (reason, 'unreachable') THEN told_at END WHERE channel = $1 AND since IS NOT NULL
"""


async def still_paused(connection: Connection, channel: str, failed: SendFailed) -> None:
    """Write down what the probe was told."""
    await connection.execute(STILL, channel, reason_of(failed), failed.message[:500])


# A provider that answers a probe may still take nothing: until something has gone out, one failure pauses its channel
# again.
LIFT: Final = """
UPDATE messenger.circuit_breakers SET since = NULL, failures = $2, first_failed_at = clock_timestamp()
WHERE channel = $1 AND since IS NOT NULL
"""


async def lift(connection: Connection, channel: str) -> None:
    """Lift the pause, since the channel answers; one more failure before anything has gone out pauses it again."""
    await connection.execute(LIFT, channel, MOST_FAILURES - 1)
