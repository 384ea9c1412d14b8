"""A house of its own: pairing, stopping by Ctrl-C and by SIGTERM, starting again, migrating twice."""

import re
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.rpc import Answer
from tests.rig import fresh
from tests.rig.bench import Bench, House, free_block
from tests.rig.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")
SANDBOX = "http://127.0.0.1:{sandbox}"


@pytest_asyncio.fixture(loop_scope="session")
async def house(bench: Bench) -> AsyncIterator[House]:
    made = await bench.house()
    yield made
    made.close()


def code_in(said: str) -> str:
    found = re.search(r"https://t\.me/sandbox_77_bot\?start=([A-Za-z0-9_-]+)", said)
    assert found, said
    return found[1]


async def answered(fleet: Fleet, wanted: str) -> Answer:
    """A notify by Telegram that must be answered with this status."""
    said = fresh.words("paired")
    answer = await fleet.notify(channel="telegram", message=said)
    assert answer["status"] == wanted, answer
    return {**answer, "said": said}


async def test_a_code_from_the_command_line_makes_a_private_chat_the_owners(bench: Bench) -> None:
    fleet = await Fleet.start(await bench.house(BUTLERS_TELEGRAM_TOKEN="77:live", BUTLERS_TELEGRAM_BASE_URL=SANDBOX))
    chat, other = fresh.chat(), fresh.chat()
    ended, said, _ = await fleet.house.butlers("pair", "telegram")
    assert ended == 0
    code = code_in(said)
    await fleet.outside.say(other, "/start wrong")
    await fleet.outside.say(other, f"/start {code}", chat=-4711)
    await fleet.outside.say(chat, f"/start {code}")
    await fleet.outside.until(lambda e: e.to == str(chat) and "Linked." in e.text)
    await fleet.outside.say(other, f"/start {code}")
    answer = await answered(fleet, "ok")
    entry = await fleet.outside.arrived(str(answer["said"]), chat)
    assert entry.token_id == "77"
    assert answer["delivery"] == {"channel": "telegram", "delivery_id": entry.provider_id}
    values = await fleet.sql(
        "SELECT i.value FROM shared.contact_info i JOIN shared.contacts c ON c.id = i.contact_id"
        " WHERE 'owner' = ANY (c.roles) AND i.type = 'telegram' AND i.is_primary"
    )
    assert [row["value"] for row in values] == [str(chat)]
    await fleet.stop()


async def test_pairing_without_a_bot_says_what_to_do(house: House) -> None:
    code, _, said = await house.butlers("pair", "telegram")
    assert code == 1
    assert said == "butlers: BUTLERS_TELEGRAM_TOKEN is not set. Get a token from @BotFather and set it.\n"


async def test_pairing_without_an_owner_says_who_is_missing_and_prints_no_link(bench: Bench) -> None:
    fleet = await Fleet.start(await bench.house(BUTLERS_TELEGRAM_TOKEN="77:live", BUTLERS_TELEGRAM_BASE_URL=SANDBOX))
    await fleet.sql("UPDATE shared.contacts SET roles = '{}' WHERE 'owner' = ANY (roles)")
    wrong = "butlers: There is no owner yet. Run `butlers contacts add NAME --role owner`.\n"
    assert await fleet.house.butlers("pair", "telegram") == (1, "", wrong)
    await fleet.stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_stops_within_five_seconds_and_starts_again_with_all_it_had(
    house: House, number: signal.Signals
) -> None:
    fleet = await Fleet.start(house, "one")
    said, chat = fresh.words("kept"), fresh.chat()
    parked = await fleet.notify(channel="telegram", message=said, recipient=str(chat))
    card = await fleet.outside.card(str(parked["action_id"]))
    spent: list[float] = []
    # What holds it up does so each time, and a busy machine is slow now and then.
    while not spent or (spent[-1] >= 5 and len(spent) < 3):
        since = time.monotonic()
        assert await fleet.kill("up", number) == [0]
        spent.append(time.monotonic() - since)
        await fleet.restart("up")
    assert spent[-1] < 5
    again = await fleet.notify(channel="telegram", message=said, recipient=str(chat))
    assert (again["action_id"], again["duplicate"]) == (parked["action_id"], True)
    await fleet.outside.press(card, "Approve")
    await fleet.outside.arrived(said, chat)
    await fleet.stop()


async def test_a_second_migration_changes_nothing(house: House) -> None:
    keys = {path: path.read_bytes() for path in house.home.rglob("keys/*/*")}
    for _ in range(2):
        code, said, wrong = await house.butlers("migrate")
        assert (code, wrong) == (0, ""), said
    assert {path: path.read_bytes() for path in house.home.rglob("keys/*/*")} == keys


async def test_another_home_takes_nothing_from_daemons_that_run_and_takes_over_once_they_stopped(
    house: House, tmp_path: Path
) -> None:
    fleet, other = await Fleet.start(house, "one"), str(tmp_path / "other")
    base, claim = free_block()
    for command in ("migrate", "up"):
        code, _, said = await house.butlers(command, BUTLERS_HOME=other, BUTLERS_PORT_BASE=str(base))
        assert code == 1
        assert said.startswith("butlers: This database is in use: daemons with the keys of another BUTLERS_HOME"), said
    claim.close()
    assert not (tmp_path / "other" / "keys").exists()
    await answered(fleet, "ok")
    assert (await house.butlers("brake", "status"))[0] == 0
    await fleet.stop()
    code, _, said = await house.butlers("migrate", BUTLERS_HOME=other)
    assert code == 0, said
