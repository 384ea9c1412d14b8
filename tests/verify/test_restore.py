"""The restore drill: a backup is put back, in four ways, and nothing goes to a third party without the owner's word.

What happens before stands in tests/rig/drill.py. The fleet is started on what was put back, and every call is made once
more.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.rig.bench import Bench
from tests.rig.drill import Drill, gone_on

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def drill(bench: Bench) -> AsyncIterator[Drill]:
    """A fleet of which a backup was made, and that went on."""
    async with gone_on(bench) as made:
        yield made


async def test_the_database_only(drill: Drill) -> None:
    await drill.put_back_database()
    await drill.start()
    await drill.nothing_goes_by_itself()
    await drill.goes_by_the_owners_word()


async def test_home_and_database_and_the_owner_says_so(drill: Drill) -> None:
    await drill.put_back_database()
    drill.put_back_home()
    code, out, err = await drill.fleet.house.butlers("restored")
    assert code == 0, err
    assert "unconfirmed" in out
    await drill.start()
    await drill.nothing_goes_by_itself()


async def test_another_machine_whose_home_has_no_witness(drill: Drill) -> None:
    await drill.put_back_database()
    drill.put_back_home()
    (drill.fleet.house.home / "keys" / "messenger" / "witness").unlink()
    await drill.start()
    await drill.nothing_goes_by_itself()


async def test_twice_in_a_row(drill: Drill) -> None:
    await drill.put_back_database()
    await drill.start()
    await drill.nothing_goes_by_itself()
    await drill.stop()
    await drill.put_back_database()
    await drill.start()
    await drill.nothing_goes_by_itself()
