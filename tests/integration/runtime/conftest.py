"""The butler and the stand-in for models that tests of runtimes share."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.runtime.small_butler import SmallButler, small_butler
from tests.rig.model_server import ModelServer, model_server


@pytest_asyncio.fixture
async def butler() -> AsyncIterator[SmallButler]:
    """A butler of the test's own."""
    async with small_butler() as made:
        yield made


@pytest_asyncio.fixture
async def models() -> AsyncIterator[ModelServer]:
    """A stand-in for both providers."""
    async with model_server() as made:
        yield made
