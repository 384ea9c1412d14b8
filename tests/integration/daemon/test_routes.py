"""The routes of a moment are noted in one unit of work, and nobody who is answered waits for that."""

from uuid import uuid4

import pytest

from switchboard.route import Routes
from switchboard.storage.registry import Routed
from tests.integration.house import House
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
NOTED = """
SELECT count(*) AS rows, count(DISTINCT xmin::text) AS commits FROM switchboard.routes WHERE request_id = $1
"""


def routed(request_id: str, status: str = "ok") -> Routed:
    return Routed(request_id, "greeter", "messenger", "route.execute", None, status, None, 1.5)


async def test_those_of_a_moment_are_one_unit_of_work(still_house: House) -> None:
    routes, request_id = Routes(still_house.context("switchboard").db), str(uuid4())
    for _ in range(20):
        routes.note(routed(request_id))
    assert tuple(await still_house.row(NOTED, request_id)) == (0, 0), "nobody has waited for it"

    async def noted() -> bool:
        return tuple(await still_house.row(NOTED, request_id)) == (20, 1)

    await eventually(noted)
    routes.note(routed(request_id))
    await routes.close()
    assert tuple(await still_house.row(NOTED, request_id)) == (21, 2), "who stops writes what is left"


async def test_one_that_cannot_be_noted_spoils_none_but_itself(still_house: House) -> None:
    routes, request_id = Routes(still_house.context("switchboard").db), str(uuid4())
    for status in ("ok", "no row holds \0", "ok"):
        routes.note(routed(request_id, status))
    await routes.close()
    assert (await still_house.row(NOTED, request_id))["rows"] == 2
