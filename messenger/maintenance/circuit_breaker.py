"""A channel that pauses itself when nothing can leave by it, and the probe that brings it back.

The row is all there is to a pause: while it stands nothing of the channel is claimed, one Messenger at a time
probes, and the owner is told once, by the other channel.
"""

import asyncio
from collections.abc import Mapping, MutableMapping
from typing import Final

from butlers.butler import Ground
from messenger.cards import approval
from messenger.channels.base import Channel, Receipt, SendFailed
from messenger.storage import cards, transitions
from messenger.storage.deliveries import Claimed
from messenger.verdict import Authorized, Blocked
from shared.channels import realms
from shared.db.pool import Connection, Record
from shared.db.wake import tell
from shared.display.owner import Sheet
from shared.display.quotes import Quote
from shared.display.visible import visible
from shared.errors import ButlersError
from shared.loops import pause as wait_for
from shared.model import Decision, Finding
from shared.telemetry.logs import logger
from shared.telemetry.metrics import channel_paused

log = logger("messenger.maintenance.circuit_breaker")
CHANNEL_NAMES: Final = {"telegram": "Telegram", "email": "The mail server"}
REMEDIES: Final = {
    "telegram": "Put the token that @BotFather shows into BUTLERS_TELEGRAM_TOKEN and start the Messenger again.",
    "email": "Correct the login in BUTLERS_SMTP_URL and start the Messenger again.",
}
# So many failures in a row within ten minutes, whichever messages they met: an answer alone is waited for a minute.
MOST_FAILURES: Final = 5

# Until something has gone out the owner hears of the next pause within ten minutes only if it is another: that a hand
# is needed is always told.
PAUSE: Final = """
INSERT INTO messenger.pauses AS p (channel, reason, detail, since, next_probe_at)
VALUES ($1, $2, $3, clock_timestamp(), clock_timestamp() + interval '5 seconds')
ON CONFLICT (channel) DO UPDATE SET reason = $2, detail = $3, since = EXCLUDED.since,
    next_probe_at = EXCLUDED.next_probe_at, probes = p.probes + (p.next_probe_at IS NOT NULL)::int,
    told_at = CASE WHEN p.first_failed_at > clock_timestamp() - interval '10 minutes'
        AND $2 IN (p.reason, 'unreachable') THEN p.told_at END
WHERE p.since IS NULL RETURNING channel
"""
FAILED: Final = """
INSERT INTO messenger.pauses AS p (channel, reason, detail) VALUES ($1, 'unreachable', $2)
ON CONFLICT (channel) DO UPDATE SET detail = $2,
    failures = CASE WHEN p.first_failed_at > clock_timestamp() - interval '10 minutes' THEN p.failures + 1 ELSE 1 END,
    first_failed_at = CASE WHEN p.first_failed_at > clock_timestamp() - interval '10 minutes' THEN p.first_failed_at
        ELSE clock_timestamp() END,
    told_at = CASE WHEN p.first_failed_at > clock_timestamp() - interval '10 minutes' THEN p.told_at END
WHERE p.since IS NULL RETURNING failures
"""
WORKED: Final = "DELETE FROM messenger.pauses WHERE channel = $1 AND since IS NULL"
# Of several Messengers one takes the probe. A login that is refused is tried ever more seldom, up to 5 minutes.
TAKE_PROBE: Final = """
UPDATE messenger.pauses SET probes = probes + 1, next_probe_at = clock_timestamp() + interval '5 seconds'
    * CASE reason WHEN 'unauthorized' THEN least(60, 2 ^ least(probes + 1, 10)) ELSE 1 END
WHERE since IS NOT NULL AND (next_probe_at <= clock_timestamp() OR next_probe_at > clock_timestamp()
    + CASE reason WHEN 'unauthorized' THEN interval '5 minutes' ELSE interval '5 seconds' END) RETURNING channel
"""
STILL: Final = """
UPDATE messenger.pauses SET reason = $2, detail = $3,
    told_at = CASE WHEN $2 IN (reason, 'unreachable') THEN told_at END WHERE channel = $1 AND since IS NOT NULL
"""
# Who answers a probe may still take nothing: until something has gone out, one failure pauses the channel again.
LIFT: Final = """
UPDATE messenger.pauses SET since = NULL, failures = $2, first_failed_at = clock_timestamp()
WHERE channel = $1 AND since IS NOT NULL
"""
PROBE_NOW: Final = "UPDATE messenger.pauses SET next_probe_at = clock_timestamp(), probes = 0 WHERE since IS NOT NULL"
PAUSED: Final = """
SELECT channel, reason, detail, since, waiting, next_probe_at FROM messenger.pauses
WHERE since IS NOT NULL ORDER BY channel
"""
# Of what was told and did not go, since it was over for a moment, the next pause tells again.
UNTOLD: Final = "UPDATE messenger.pauses SET told_at = NULL WHERE channel <> $1 AND since IS NULL"
STANDS: Final = "SELECT EXISTS (SELECT FROM messenger.pauses WHERE channel = $1 AND since IS NOT NULL)"
# A connection that comes back by itself at once is not worth a message; one that is lost again is.
TELL: Final = """
UPDATE messenger.pauses p SET told_at = clock_timestamp(), waiting = (SELECT count(*) FROM messenger.deliveries d
    WHERE d.channel = p.channel AND d.status = 'queued')
WHERE since IS NOT NULL AND told_at IS NULL AND (reason = 'unauthorized' OR probes > 1) RETURNING channel
"""


async def heed(connection: Connection, channel: str, result: Receipt | SendFailed) -> None:
    """What an attempt's end says about its whole channel; the transaction is that which settles the attempt.

    A word on the message itself, a receipt or a refusal, shows that the channel works; what is put off shows nothing.
    """
    if isinstance(result, Receipt) or result.reason == "provider_rejected":
        await connection.execute(WORKED, channel)
    elif result.reason == "unauthorized":
        await _begin(connection, channel, result)
    elif result.is_down or not result.proved_not_sent:
        failures = await connection.fetchval(FAILED, channel, visible(result.message)[:500])
        if failures is not None and failures >= MOST_FAILURES:
            await _begin(connection, channel, result)


async def _begin(connection: Connection, channel: str, result: SendFailed) -> None:
    if await connection.fetchval(PAUSE, channel, _reason(result), visible(result.message)[:500]) is not None:
        log.warning("the channel pauses itself", channel=channel, why=result.message)
        await tell(connection, "cards")


def _reason(result: SendFailed) -> str:
    return "unauthorized" if result.reason == "unauthorized" else "unreachable"


async def stands(connection: Connection, channel: str) -> bool:
    """Whether nothing of this channel is claimed at the moment."""
    return bool(await connection.fetchval(STANDS, channel))


async def tell_owner(connection: Connection) -> int:
    """Queue the word about each pause that the owner has not heard of; how many."""
    told = [row["channel"] for row in await connection.fetch(TELL)]
    for channel in told:
        await cards.tell_elsewhere(connection, channel)
    return len(told)


async def check(connection: Connection, claimed: Claimed, ground: Ground) -> Authorized | Blocked:
    """The wires of the word about the other channel's pause, as long as that stands."""
    found = [row for row in await connection.fetch(PAUSED) if row["channel"] != claimed.channel]
    if not found:
        await connection.execute(UNTOLD, claimed.channel)
        return Blocked("cancelled", (Finding("pause_over", "The channel works again."),))
    about = realms.realm_of(ground.settings, found[0]["channel"])
    stopped = await approval.elsewhere(connection, claimed, about, ground)
    if stopped is not None:
        return stopped
    title, shown = words(found[0])
    wires = await approval.told(connection, claimed, title, shown)
    return Authorized(wires, Decision("allow", (Finding("channel_paused", title),)))


def words(row: Record) -> tuple[str, Sheet]:
    """Title and text of what the owner is told."""
    name, locked_out = CHANNEL_NAMES[row["channel"]], row["reason"] == "unauthorized"
    what = {"telegram": "the bot's token", "email": "the login"}[row["channel"]]
    title = f"{name} does not accept {what}." if locked_out else f"{name} cannot be reached."
    remedy = REMEDIES[row["channel"]] if locked_out else "It is tried every few seconds; nothing need be done here."
    since = f"{row['since']:%Y-%m-%d %H:%M} UTC"
    waiting = f"{row['waiting']} message{'' if row['waiting'] == 1 else 's'} waited when this was written."
    lines = [title, remedy, f"Since {since} nothing leaves by it; {waiting} Nothing is lost."]
    return title, Sheet("\n".join(lines), (Quote(row["detail"], "It said"),) if row["detail"] else ())


def sentences(rows: list[Record]) -> dict[str, str]:
    """Each paused channel in one sentence, by its name."""
    return {row["channel"]: f"{words(row)[0]} Paused since {row['since']:%H:%M:%S} UTC." for row in rows}


async def run(
    ground: Ground, channels: Mapping[str, Channel], paused: MutableMapping[str, str], stopping: asyncio.Event
) -> None:
    """Probe what is paused; what this process was just configured with is tried at once. `paused` shows how it is."""
    first = True
    while not stopping.is_set():
        try:
            async with ground.db.work() as connection:
                if first:
                    await connection.execute(PROBE_NOW)
                due = [row["channel"] for row in await connection.fetch(TAKE_PROBE)]
            first = False
            await asyncio.gather(*(_probe(ground, channels[name]) for name in due if name in channels))
            async with ground.db.work() as connection:
                rows = list(await connection.fetch(PAUSED))
            paused.clear()
            paused.update(sentences(rows))
            for name in channels:
                channel_paused.labels(channel=name).set(name in paused)
        except ButlersError as lost:
            log.warning("not probed", why=lost.message)
        await wait_for(stopping, ground.settings.sweep_seconds)


async def _probe(ground: Ground, channel: Channel) -> None:
    """Ask the provider for nothing; if it answers, everything that waited is due."""
    failed = await channel.probe()
    async with ground.db.work() as connection:
        if failed is not None:
            await connection.execute(STILL, channel.name, _reason(failed), failed.message[:500])
            return
        await transitions.due_again(connection, channel.name)
        await connection.execute(LIFT, channel.name, MOST_FAILURES - 1)
        await tell(connection, "deliveries")
    log.warning("the channel works again", channel=channel.name)
    ground.wakes["deliveries"]()
