"""Edits of what the owner wrote: which session is asked the words as they are now, whatever a butler holds."""

import pytest

from switchboard import incoming
from tests.integration.daemon.test_conversations import OPEN, TOLD
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


async def test_the_owner_is_told_that_words_were_asked_which_are_taken_back(still_house: House, message: str) -> None:
    number, picture = 820_002, {"attachments": [{"name": "bill.png"}]}
    payload = {"text": f"/health {message}", **picture}
    [session] = await begun(still_house, event(f"/health {message}", OWNER, number, payload=payload))
    await still_house.sql.execute(OPEN)
    emptied = {"kind": "edit", "external_event_id": f"{OWNER}:{number}:edit:emptied"}
    await begun(still_house, event("  ", OWNER, number, event=emptied, payload={"text": "  ", **picture}))
    [told] = await still_house.sql.fetch(TOLD, session["request_context"]["request_id"])
    assert told["envelope"]["delivery"]["message"] == incoming.TAKEN_BACK.format(name="health")


async def test_the_owner_is_told_that_a_change_names_another_than_whom_it_went_to(
    still_house: House, message: str
) -> None:
    number = 820_003
    [session] = await begun(still_house, event(f"/health {message}", OWNER, number))
    edit = {"kind": "edit", "external_event_id": f"{OWNER}:{number}:edit:named"}
    [changed] = await begun(still_house, event(f"/greeter {message}", OWNER, number, event=edit))
    assert (changed["id"], changed["butler"]) == (session["id"], "health")
    [told] = await still_house.sql.fetch(TOLD, session["request_context"]["request_id"])
    expected = incoming.NAMES_ANOTHER.format(name="health", named="greeter")
    assert told["envelope"]["delivery"]["message"] == expected


async def test_the_owner_is_told_that_files_which_are_replaced_were_asked_about(
    still_house: House, message: str
) -> None:
    """The same file may have another id in the edit; another one has another name, type or size."""
    number, said = 820_004, f"/health {message}"

    def sent(kind: str, size: int, at: str) -> dict[str, object]:
        what = {"kind": kind, "external_event_id": f"{OWNER}:{number}:{kind}:{at}"}
        picture = {"type": "image/jpeg", "size": size, "file_id": at}
        return event(said, OWNER, number, event=what, payload={"text": said, "attachments": [picture]})

    [session] = await begun(still_house, sent("message", 1000, "first"))
    told = TOLD, session["request_context"]["request_id"]
    await begun(still_house, sent("edit", 1000, "again"))
    assert await still_house.sql.fetch(*told) == []
    await begun(still_house, sent("edit", 2000, "another"))
    [row] = await still_house.sql.fetch(*told)
    assert row["envelope"]["delivery"]["message"] == incoming.OTHER_FILES.format(name="health")


async def test_the_owner_is_told_that_words_which_are_replaced_with_the_files_came_too_late(
    still_house: House, message: str
) -> None:
    number = 820_005

    def sent(kind: str, said: str, size: int) -> dict[str, object]:
        what = {"kind": kind, "external_event_id": f"{OWNER}:{number}:{kind}"}
        picture = {"type": "image/jpeg", "size": size, "file_id": "one"}
        return event(said, OWNER, number, event=what, payload={"text": said, "attachments": [picture]})

    [session] = await begun(still_house, sent("message", f"/health pay 10 {message}", 1000))
    await still_house.sql.execute(OPEN)
    await begun(still_house, sent("edit", f"/health pay 20 {message}", 2000))
    [row] = await still_house.sql.fetch(TOLD, session["request_context"]["request_id"])
    assert row["envelope"]["delivery"]["message"] == incoming.CHANGED_TOO_LATE.format(name="health")
