"""A channel that pauses itself, through the whole fleet: seen, told elsewhere, and over with no hand."""

import json

import pytest

from tests.rig.bench import OWNER, Bench
from tests.rig.fleet import Fleet
from tests.rig.waiting import LONGEST


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_a_token_refused_for_a_while_delays_everything_and_loses_nothing(bench: Bench) -> None:
    fleet = await Fleet.start(await bench.house(BUTLERS_SWEEP_SECONDS="0.2", BUTLERS_RATE_LIMITS="1"), "one")
    try:
        for method in ("sendMessage", "getMe"):
            await fleet.outside.fault("telegram", method, "401", times=50)
        answer = await fleet.notify(channel="telegram", message="held up by a token")
        assert answer["status"] == "queued"
        shown = json.loads((await fleet.house.butlers("status", "--json"))[1])
        assert [one["what"] for one in shown["waiting"]] == ["telegram"]
        told = await fleet.outside.arrived("does not accept the bot's token", "owner@sandbox.test")
        assert "BUTLERS_TELEGRAM_TOKEN" in str(told)
        later = await fleet.notify(channel="email", message="mail goes on")
        assert later["status"] == "ok"
        await fleet.outside.clear_faults()
        # Each probe doubles the wait for the next one: whoever was slow so far meets a longer one.
        await fleet.outside.arrived("held up by a token", OWNER, 2 * LONGEST)
        assert len(await fleet.outside.having("held up by a token")) == 1
        assert len(await fleet.outside.having("does not accept the bot's token")) == 1
        shown = json.loads((await fleet.house.butlers("status", "--json"))[1])
        assert shown["waiting"] == []
    finally:
        await fleet.stop()
