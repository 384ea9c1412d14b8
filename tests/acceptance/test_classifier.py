"""A classifier that plays a script, in a whole fleet: it names a butler, invents one, is killed, and comes too late."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shared.db.pool import Record
from tests.rig import fresh
from tests.rig.bench import OWNER, Bench, House
from tests.rig.fleet import UP, Fleet
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Nobody's thread is half an hour old: neither what the owner wrote nor what a butler told.
FRESH = """
WITH told AS (UPDATE messenger.deliveries SET settled_at = settled_at - interval '1 hour')
UPDATE switchboard.inbox SET received_at = received_at - interval '1 hour'
"""
ROUTED = """
SELECT i.routed_to, i.routed_because, s.butler, (SELECT count(*) FROM shared.sessions c WHERE c.cause = 'classify'
    AND c.id = i.asked_in) AS asked
FROM switchboard.inbox i JOIN shared.sessions s ON s.id = i.id WHERE i.text = $1 AND i.route_until IS NULL
"""
RUNS = "SELECT id FROM shared.sessions WHERE cause = 'classify' AND status = 'running'"
LATE = f"{RUNS} AND created_at < clock_timestamp() - interval '20 s'"


def classifies(house: House, step: str) -> None:
    """Let the greeter be the classifier that does this; health, which is the default, says a word."""
    for name, more, does in (("greeter", "classifier = true\n", step), ("health", "default = true\n", 'say = "Yes."')):
        head = f'name = "{name}"\ndescription = "The {name} butler of a test."\n{more}'
        runtime = f'[runtime]\nkind = "script"\nat_once = 4\n[[runtime.steps]]\n{does}\n'
        (house.folder / "fleet" / name / "butler.toml").write_text(head + runtime)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one(bench: Bench) -> AsyncIterator[Fleet]:
    """All in one process; the classifier names itself."""
    house = await bench.house()
    classifies(house, 'say = "greeter"')
    made = await Fleet.start(house)
    try:
        yield made
        await made.stop()
    except BaseException:
        await made.abandon()
        raise


async def went(fleet: Fleet, text: str) -> Record:
    """Where the owner's message went, for whom it began a session, and how many asked about it."""
    return await eventually(lambda: fleet.db.fetchrow(ROUTED, text))


async def test_the_butler_that_the_classifier_names_takes_the_message(one: Fleet) -> None:
    said = fresh.words("how are the roses")
    await one.outside.say(OWNER, said)
    assert tuple(await went(one, said)) == ("greeter", "the classifier named it", "greeter", 1)


async def test_an_invented_name_leaves_it_with_the_default(one: Fleet) -> None:
    classifies(one.house, 'say = "Greeter, I think."')
    assert (await one.house.butlers("reload"))[0] == 0
    await one.sql(FRESH)
    said = fresh.words("how are the tulips")
    await one.outside.say(OWNER, said)
    why = "the default butler; the classifier named none of the butlers"
    assert tuple(await went(one, said)) == ("health", why, "health", 1)


async def test_a_tool_that_the_classifier_calls_is_refused(one: Fleet) -> None:
    words = fresh.words("from the classifier")
    classifies(one.house, f'call = "notify"\narguments = {{ channel = "telegram", message = "{words}" }}')
    assert (await one.house.butlers("reload"))[0] == 0
    await one.sql(FRESH)
    said = fresh.words("how are the lilies")
    await one.outside.say(OWNER, said)
    why = "the default butler; the classifier's session failed"
    assert tuple(await went(one, said)) == ("health", why, "health", 1)
    assert not [one for one in await one.outside.having(words) if one.text == words]


@pytest.mark.slow
async def test_a_classifier_that_is_killed_and_comes_too_late_loses_nothing(one: Fleet) -> None:
    classifies(one.house, "wait = 300")
    assert (await one.house.butlers("reload"))[0] == 0
    await one.sql(FRESH)
    said = fresh.words("how are the asters")
    await one.outside.say(OWNER, said)
    await eventually(lambda: one.db.fetchval(RUNS))
    await one.kill(UP)
    await one.begin()
    await eventually(lambda: one.db.fetchval(LATE))
    why = "the default butler; the classifier did not answer in time"
    assert tuple(await went(one, said)) == ("health", why, "health", 1)
    await eventually(lambda: one.db.fetchval(f"SELECT NOT EXISTS ({RUNS})"))
