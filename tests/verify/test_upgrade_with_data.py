"""An installation made by an earlier program goes on with all its data: its rows, buttons, tokens, queue and backups.

What it has stands in tests/rig/older.py. Of each earlier program the whole upgrade is made once, by `butlers migrate`;
how long it takes is in build/figures/upgrade.json.
"""

import signal
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

import asyncpg
import jwt
import pytest
import pytest_asyncio

from butlers.setup.migrate import head
from shared.auth import keystore
from shared.auth.keypairs import load_private
from shared.rpc import request_of, tool_object
from tests.rig import figures, fresh, older
from tests.rig.bench import Bench, House
from tests.rig.drill import RESTORED
from tests.rig.fleet import UP, Fleet
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

# A much older program's; that of the first house; the last one's before this.
REVISIONS: Final = ("0010", "0023", "0034")
GOAL_SECONDS: Final = 10
AT_MOST_SECONDS: Final = 30
STATES: Final = """
SELECT 'notification ' || status AS state, count(*) FROM shared.notifications GROUP BY 1
UNION ALL SELECT 'question ' || status, count(*) FROM shared.pending_actions GROUP BY 1
UNION ALL SELECT 'delivery ' || status || ' ' || class || coalesce(' ' || reason, ''), count(*)
    FROM messenger.deliveries GROUP BY 1
UNION ALL SELECT 'part ' || status, count(*) FROM messenger.parts GROUP BY 1
"""
# By the same names, what the checks of the four tables let in.
ALLOWED: Final = """
SELECT CASE conname WHEN 'notifications_status_check' THEN 'notification'
        WHEN 'pending_actions_status_check' THEN 'question' WHEN 'parts_status_check' THEN 'part' ELSE 'delivery' END,
    (regexp_matches(pg_get_constraintdef(oid), $$'(\\w+)'$$, 'g'))[1]
FROM pg_constraint WHERE conname IN ('notifications_status_check', 'pending_actions_status_check',
    'deliveries_status_check', 'parts_status_check')
"""
KINDS: Final = "SELECT card_kind, count(*) FROM messenger.deliveries WHERE class = 'card' GROUP BY 1"
STATUS: Final = "SELECT status FROM shared.notifications WHERE envelope #>> '{delivery,message}' = $1"
NOT_SEALED: Final = """
SELECT count(*) FROM shared.approval_events
WHERE NOT seq <@ ANY (SELECT seqs FROM shared.audit_seals) AND at < clock_timestamp() - interval '5 minutes'
"""
LIFT: Final = "UPDATE shared.brakes SET lifted_at = clock_timestamp()"
NUMBERED: Final = "UPDATE public.schema_version SET version_num = $1"
Contents = dict[str, tuple[int, str]]


@dataclass(slots=True)
class Upgraded:
    """A house that an earlier program made, after `butlers migrate`; its fleet runs."""

    revision: str
    bench: Bench
    fleet: Fleet
    seconds: float
    then: Contents
    now: Contents
    states: tuple[Mapping[str, int], Mapping[str, int]]
    kinds: Mapping[str, int]

    async def until(self, n: int, status: str) -> None:
        """Wait until that message stands so."""

        async def look() -> bool:
            return await self.fleet.value(STATUS, f"words {n}") == status

        await eventually(look)


async def counted(connection: older.Rows, text: str) -> dict[str, int]:
    """How many there are of each."""
    return {row[0]: row[1] for row in await connection.fetch(text)}


@pytest_asyncio.fixture(params=REVISIONS, scope="module", loop_scope="module")
async def upgraded(bench: Bench, request: pytest.FixtureRequest) -> AsyncIterator[Upgraded]:
    """A house of each earlier program, brought to today's."""
    house = await bench.house()
    try:
        made = await brought(bench, house, request.param)
    except BaseException:
        house.close()
        raise
    yield made
    await made.fleet.abandon()


async def brought(bench: Bench, house: House, revision: str) -> Upgraded:
    """Let this house be one of that revision, of which a backup was made; upgrade and start it."""
    await older.made(house, revision)
    await bench.ran("pg_dump", "-Fc", "-f", str(house.folder / "backup"), house.dsn)
    connection = await asyncpg.connect(house.dsn)
    try:
        columns = await older.columns_of(connection)
        then, before = await older.contents(connection, columns, {}), await counted(connection, STATES)
        began = time.monotonic()
        code, _, err = await house.butlers("migrate")
        seconds = time.monotonic() - began
        assert code == 0, err
        now = await older.contents(connection, columns, older.RENAMED)
        states = before, await counted(connection, STATES)
        kinds = await counted(connection, KINDS)
    finally:
        await connection.close()
    return Upgraded(revision, bench, await Fleet.start(house), seconds, then, now, states, kinds)


async def test_it_takes_seconds(upgraded: Upgraded) -> None:
    figures.keep("upgrade", {f"seconds_from_{upgraded.revision}": round(upgraded.seconds, 2)})
    print(f"from {upgraded.revision}: {upgraded.seconds:.2f} s, to be at most {GOAL_SECONDS}")
    assert upgraded.seconds < AT_MOST_SECONDS


async def test_there_is_something_of_everything(upgraded: Upgraded) -> None:
    """So that the tests below speak of all tables, and of all states that a row may have."""
    assert [table for table, (rows, _) in upgraded.then.items() if rows == 0] == []
    there = {tuple(state.split()[:2]) for state in upgraded.states[0]}
    assert {tuple(row) for row in await upgraded.fleet.sql(ALLOWED)} - there == set()


async def test_every_row_is_there_and_says_what_it_said(upgraded: Upgraded) -> None:
    assert upgraded.now == upgraded.then
    before, after = upgraded.states
    assert after == before
    assert sum(many for state, many in after.items() if state.startswith("notification ")) == older.SETTLED


async def test_each_card_is_of_the_kind_it_was(upgraded: Upgraded) -> None:
    told = {"approval": upgraded.then["shared.pending_actions"][0]}
    if upgraded.revision >= "0014":
        told |= {"digest": 1, "bounced": 5, "uncertain": 30, "channel_paused": 1}
    assert upgraded.kinds == told


async def test_a_button_of_then_still_counts(upgraded: Upgraded) -> None:
    outside = upgraded.fleet.outside
    [row] = await upgraded.fleet.sql(older.TOLD_TO, f"words {older.ASKED}")
    await outside.press(await outside.card(str(row["action_id"])), "Approve")
    await upgraded.until(older.ASKED, "ok")
    await outside.arrived(f"words {older.ASKED}", row["address"])


async def test_a_token_of_then_still_counts_and_a_call_made_again_has_its_answer(upgraded: Upgraded) -> None:
    house = upgraded.fleet.house
    claims = {"iss": "owner", "sub": "client:greeter", "aud": "greeter", "scope": "client", "jti": older.JTI}
    key = load_private(keystore.read(house.home, "owner").private_pem)
    now = int(time.time())
    token = jwt.encode({**claims, "iat": now - 60, "exp": now + 3600}, key, algorithm="EdDSA")
    [row] = await upgraded.fleet.sql(older.TOLD_TO, f"words {older.SETTLED}")
    said = {"channel": "telegram", "message": f"words {older.SETTLED}"}
    context = {
        "request_id": f"call {older.SETTLED}",
        "source_channel": "mcp",
        "source_endpoint_identity": "then",
        "source_sender_identity": "then",
    }
    headers, body = request_of(token, "notify", {**said, "request_context": context}, 1)
    async with upgraded.fleet.http.post(f"{upgraded.fleet.url('greeter')}/mcp", json=body, headers=headers) as answer:
        told = tool_object(await answer.read(), "greeter", "notify")
    assert (told["status"], told["notification_id"], told["duplicate"]) == ("ok", str(row["id"]), True)


@pytest.mark.parametrize("n", [older.BY_RULE, older.TO_OWNER, older.NOT_ROUTED])
async def test_what_was_queued_is_delivered_once(upgraded: Upgraded, n: int) -> None:
    await upgraded.until(n, "ok")
    [row] = await upgraded.fleet.sql(older.TOLD_TO, f"words {n}")
    await upgraded.fleet.outside.arrived(f"words {n}", row["address"])


async def test_it_is_sound(upgraded: Upgraded) -> None:
    async def all_sealed() -> bool:
        return await upgraded.fleet.value(NOT_SEALED) == 0

    await eventually(all_sealed)
    for argv in (("doctor",), ("audit", "verify")):
        code, out, err = await upgraded.fleet.house.butlers(*argv)
        assert code == 0, (out, err)
    assert not upgraded.fleet.tracebacks()


async def test_its_backup_is_known_as_one_that_was_put_back(upgraded: Upgraded) -> None:
    """Of the earlier program's schema; the last test of each, since the house is restored after it."""
    fleet = upgraded.fleet
    await upgraded.until(older.BY_RULE, "ok")
    assert await fleet.kill(UP, signal.SIGTERM) == [0], fleet.logs()
    await fleet.db.close()
    await older.emptied(fleet.house)
    await upgraded.bench.ran("pg_restore", "-d", fleet.house.dsn, str(fleet.house.folder / "backup"))
    await fleet.reconnect()
    await fleet.begin()
    await eventually(lambda: fleet.value(RESTORED))
    for n in (older.BY_RULE, older.NOT_ROUTED):
        assert await fleet.value(STATUS, f"words {n}") == "uncertain"
        assert len(await fleet.outside.having(f"words {n}")) == 1


async def test_who_still_runs_an_earlier_program_ends_and_loses_nothing(bench: Bench) -> None:
    """The schema goes on under a fleet that runs; its own next start is refused, and the later program sends all."""
    fleet = await Fleet.start(await bench.house(), "each")
    try:
        held = await fleet.contact("Friend", email=(address := fresh.address()))
        await fleet.sql("INSERT INTO shared.approval_rules (arg_constraints) VALUES ($1)", {"contact_id": held})
        await fleet.sql("INSERT INTO shared.brakes DEFAULT VALUES")
        words = fresh.words("held")
        assert (await fleet.notify(channel="email", contact_id=held, message=words))["status"] == "queued"
        await fleet.sql(NUMBERED, "9999")
        for name in ("messenger", "switchboard", "health"):
            assert await fleet.ends(name) == [1]
        await fleet.sql(LIFT)
        code, _, err = await fleet.house.butlers("run", "messenger")
        assert (code, "newer than this version" in err) == (1, True)
        assert await fleet.outside.having(words) == []
        await fleet.sql(NUMBERED, head())
        await fleet.begin()
        await fleet.outside.arrived(words, address)
    finally:
        await fleet.abandon()
