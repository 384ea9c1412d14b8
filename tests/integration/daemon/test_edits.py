"""Edits of what the owner wrote: which session is asked the words as they are now, whatever a butler holds."""

import pytest

from tests.integration.daemon.test_routing import begun, event
from tests.integration.house import House
from tests.integration.sandbox_runner import OWNER

pytestmark = pytest.mark.asyncio(loop_scope="module")

ITS_OWN = "INSERT INTO shared.sessions (id, butler, cause, prompt) VALUES ($1, 'greeter', 'schedule', 'x')"


async def test_a_caption_begins_its_work_whatever_a_butler_holds(still_house: House, message: str) -> None:
    number, picture = 820_001, {"attachments": [{"name": "bill.png"}]}
    await begun(still_house, event(f"/greeter {message}", OWNER))
    await begun(still_house, event(" ", OWNER, number, payload={"text": " ", **picture}))
    sent = await still_house.row("SELECT id FROM switchboard.inbox WHERE thread = $1", f"{OWNER}:{number}")

    def caption(said: str) -> dict[str, object]:
        edit = {"kind": "edit", "external_event_id": f"{OWNER}:{number}:edit:{said}"}
        return event(said, OWNER, number, event=edit, payload={"text": said, **picture})

    async with still_house.context("greeter").db.work() as holding:
        await holding.execute(ITS_OWN, sent["id"])
        [session] = await begun(still_house, caption(f"{message} pay this"))
        [other] = await begun(still_house, event(f"/health {message}", OWNER))
    assert (session["butler"], other["butler"]) == ("greeter", "health")
    [changed] = await begun(still_house, caption(f"{message} pay that"))
    assert changed["id"] == session["id"]
