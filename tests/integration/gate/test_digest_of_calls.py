"""Calls of gated tools beyond a butler's burst, in its digest."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest
import pytest_asyncio

from messenger.storage import cards
from shared.gate.tool_call import Declared, admit_call
from shared.storage.tool_calls import NewCall
from tests.integration.house import House, button_data, opened
from tests.integration.sandbox_runner import OWNER
from tests.integration.workers import new_chat
from tests.rig.cluster import Cluster
from tests.rig.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
BURST = 3
OLDER = "UPDATE shared.pending_actions SET requested_at = requested_at - interval '6 seconds'"


@pytest_asyncio.fixture(loop_scope="module")
async def busy(cluster: Cluster) -> AsyncIterator[House]:
    """A house of its own at work."""
    async with opened(cluster, BUTLERS_CARD_BURST=str(BURST)) as made:
        yield made


async def test_a_call_of_a_tool_stands_in_a_digest_beside_messages_and_is_decided_by_its_card(busy: House) -> None:
    contact = await busy.contact("Zoe", telegram=new_chat())
    bed = f"bed {uuid4()}"
    new = NewCall(str(uuid4()), "greeter", "water", f'{{"bed":"{bed}"}}', f"Open the valve of {bed}.", "high", False)  # noqa: FBT003  # not repeatable
    async with busy.sql.transaction():
        await busy.sql.execute(cards.ONE_AT_A_TIME)
        for n in range(BURST + 1):
            await busy.notify(message=f"words {n} {uuid4()}", contact_id=contact)
        async with busy.context("greeter").db.work() as connection:
            await admit_call(connection, new, Declared("rules", "high"), timedelta(hours=72))
        await busy.sql.execute(OLDER)
    await until(lambda: busy.cards("more request") or None)
    digest = next(one for one in busy.cards("more request") if "sendMessage" in str(one["payload"]))
    text = str(digest["payload"])
    assert "Greeter needs your approval for 2 more requests:" in text
    assert "2. to run water, high risk, arguments of 50 characters" in text
    assert (bed in text, busy.cards(bed)) == (False, [])
    data = button_data(digest)[1]
    told = await busy.box.api("press", as_=OWNER, chat=OWNER, message_id=int(str(digest["provider_id"])), data=data)
    assert (await busy.handled(told["update_id"]))["outcome"] == "shown"
    card = (await until(lambda: busy.cards(bed) or None))[0]
    assert (await busy.press(card, "ry"))["outcome"] == "approved"
