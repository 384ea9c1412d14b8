"""The sandbox's people have the names that the owner gave them."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from shared.config.timings import STANDARD
from shared.storage import contacts
from tests.integration.house import House, opened
from tests.integration.sandbox_runner import running
from tests.integration.workers import new_chat
from tests.rig.cluster import Cluster
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def hurried(cluster: Cluster) -> AsyncIterator[House]:
    async with opened(cluster, timings=replace(STANDARD, unhurried=0.2)) as made:
        yield made


async def test_a_contact_is_called_by_its_name_and_by_its_new_one(hurried: House) -> None:
    house = hurried
    chat, people = new_chat(), house.box.sandbox.world.people
    anna = await house.contact("Anna", telegram=chat)
    before = house.box.sandbox.version
    assert await until(lambda: people.get(int(chat))) == "Anna"
    await contacts.rename_contact(house.sql, anna, "Anna Weiss")
    assert await until(lambda: people[int(chat)] != "Anna" and people[int(chat)]) == "Anna Weiss"
    assert house.box.sandbox.version > before  # so that the open pages show it


async def test_names_outlast_a_restart_and_odd_ones_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as box:
        assert await box.api("people", people={"42": "Anna", "43": "B" * 100}) == {"people": 2}
        refused: tuple[object, ...] = (
            {"x": "Anna"},
            {"42": ""},
            {"42": 7},
            {"-4": "Group"},
            {"9" * 30: "Far"},
            [],
            None,
        )
        for odd in refused:
            async with box.http.post(f"{box.url}/api/people", data=json.dumps({"people": odd})) as answer:
                assert answer.status == 400, odd
    async with running(tmp_path) as box:
        assert (box.sandbox.world.people[42], len(box.sandbox.world.people[43])) == ("Anna", 64)
        async with box.http.get(f"{box.url}/chats/42") as answer:
            assert "The phone of Anna" in await answer.text()
