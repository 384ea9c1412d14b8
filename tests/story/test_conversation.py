"""The whole conversation in the sandbox, whoever thinks for the butler."""

import pytest

from tests.integration.runtime.story import CHAT, MESSAGES, Player
from tests.rig.bench import Bench
from tests.story.conversation import by_a_model, by_a_script, demand_notice, demand_read, tell

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_script_plays_it(bench: Bench) -> None:
    async with by_a_script(bench) as telling:
        await tell(telling)
        first = await telling.all_is_over()
        assert first["status"] == "done"
        demand_notice(first["said"], telling.told)
        assert f'nonce="{first["nonce"]}"' in first["said"]


@pytest.mark.slow
@pytest.mark.parametrize("player", [MESSAGES, CHAT], ids=["messages", "chat"])
async def test_a_model_plays_it_and_reads_the_notice_with_its_next_result(bench: Bench, player: Player) -> None:
    async with by_a_model(bench, player) as (telling, models):
        await tell(telling)
        await telling.all_is_over()
        demand_read(models, telling.told)
