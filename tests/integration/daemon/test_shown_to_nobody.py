"""Who is shown no notice: whose token was not made for that or counts no more, and what is cut off."""

from typing import Final

import pytest

from tests.integration.daemon.test_daemon import Served
from tests.integration.daemon.test_notices import added, butler, empty, states, token, token_for_notices

pytestmark = pytest.mark.asyncio(loop_scope="module")
__all__ = ["butler", "empty", "token"]
REVOKE_LAST: Final = """
UPDATE shared.client_tokens SET revoked_at = now() WHERE made_at = (SELECT max(made_at) FROM shared.client_tokens)
"""


async def test_a_token_that_was_revoked_meanwhile_gets_none(butler: Served) -> None:
    revoked = await token_for_notices(butler.house)
    await butler.post(revoked, "number")
    await added(butler.house)
    await butler.house.sql.execute(REVOKE_LAST)
    _, body = await butler.post(revoked, "number")
    assert "structuredContent" in body
    assert ("notification" in body, await states(butler.house)) == (False, ["queued"])


async def test_a_result_of_which_a_model_sees_the_beginning_alone_takes_nothing(butler: Served, token: str) -> None:
    await added(butler.house)
    _, body = await butler.post(token, "long")
    assert ("On and on." in body, "notification" in body, await states(butler.house)) == (True, False, ["queued"])


async def test_a_token_that_was_not_made_for_notices_gets_none(butler: Served) -> None:
    before = await butler.post(butler.house.tokens["greeter"], "number")
    await added(butler.house)
    assert await butler.post(butler.house.tokens["greeter"], "number") == before
    assert await states(butler.house) == ["queued"]
