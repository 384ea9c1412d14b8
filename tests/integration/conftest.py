"""The house that integration tests share; imported only where one is asked for."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
import pytest_asyncio

if TYPE_CHECKING:
    from tests.integration.house import House
    from tests.rig.cluster import Cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(cluster: "Cluster") -> "AsyncIterator[House]":
    """The module's house, at work; after its tests every action's last line in the audit is the state it is in."""
    from tests.integration.house import MOVED_WITHOUT_A_LINE, opened  # noqa: PLC0415

    async with opened(cluster) as made:
        yield made
        assert await made.sql.fetch(MOVED_WITHOUT_A_LINE) == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def still_house(cluster: "Cluster") -> "AsyncIterator[House]":
    """The module's house in which nothing moves but by a test's own hand."""
    from tests.integration.house import opened  # noqa: PLC0415

    async with opened(cluster, loops=False) as made:
        yield made


@pytest.fixture
def message() -> str:
    """Words that no other test says."""
    return f"words {uuid4()}"
