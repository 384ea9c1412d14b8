"""Ten thousand strange calls of the timekeeper's tools: coded errors, and no traceback."""

import pytest

from butlers.modules.manictime.tools.screenshots import Desk
from tests.manictime.conftest import desk as desk  # noqa: PLC0414  # a fixture
from tests.manictime.test_bad_input import fuzz


@pytest.mark.asyncio
async def test_ten_thousand_strange_calls(desk: Desk) -> None:
    """They are as many over either form of the record."""
    assert await fuzz(desk, 5000, 2) > 200
