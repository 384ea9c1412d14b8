"""The page of a butler: its sessions as they run, and the button that stops one."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from shared.display.day_bar import KEY
from shared.storage import schedules, session_steps, sessions, state
from tests.integration.console_runner import Running
from tests.integration.house import House
from tests.integration.signed_in import fields, page, plain, signed_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONCE = """
WITH s AS (INSERT INTO shared.schedules (butler, name, source, once_at, zone, tool, arguments, catch_up)
    VALUES ('greeter', 'tea', 'tool', '2026-01-01T08:00Z', 'UTC', 'notify', '{"message": "Drink some water."}', 'once')
    RETURNING id, butler, once_at)
INSERT INTO shared.occurrences (schedule_id, butler, due_at, status, outcome, ended_at)
SELECT id, butler, once_at, 'failed', 'It was refused.', clock_timestamp() FROM s
"""
RUNNING = "INSERT INTO switchboard.butlers (name, url, kind) VALUES ('greeter', 'http://127.0.0.1:1', 'butler')"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(house: House) -> AsyncIterator[Running]:
    """The house's console with its owner signed in."""
    async with signed_in(house) as running:
        yield running


async def enqueue(house: House, prompt: str) -> str:
    """A session that waits; its id."""
    session_id = str(uuid4())
    await sessions.enqueue(house.sql, session_id=session_id, butler="greeter", cause="test", prompt=prompt)
    return session_id


async def test_what_a_session_is_asked_and_calls_is_shown_as_text(house: House, console: Running, message: str) -> None:
    session_id = await enqueue(house, f"<b>{message}</b>")
    await house.sql.execute(
        "UPDATE shared.sessions SET status = 'running', began_at = clock_timestamp() WHERE id = $1", UUID(session_id)
    )
    step = await session_steps.begun(house.sql, "greeter", session_id, "notify", {})
    await session_steps.ended(house.sql, "greeter", session_id, step, "pending_approval")
    html = await page(console, "/butlers/greeter")
    assert f"&lt;b&gt;{message}&lt;/b&gt;" in html
    assert "notify pending_approval" in plain(html)
    await house.sql.execute(RUNNING)
    assert 'href="/butlers/greeter"' in await page(console, "/")


async def test_its_schedules_show_what_is_due_and_how_it_went(house: House, console: Running) -> None:
    morning = schedules.Schedule(name="morning", zone="Europe/Berlin", cron="0 7 * * *", prompt="<b>Well?</b>")
    await schedules.follow(house.sql, "greeter", morning, None, datetime(2199, 1, 2, 6, tzinfo=UTC))
    await house.sql.execute(ONCE)
    html = await page(console, "/butlers/greeter")
    assert "&lt;b&gt;Well?&lt;/b&gt;" in html
    shown = plain(html)
    assert "morning 0 7 * * * in Europe/Berlin next 2199-01-02 06:00:00 UTC Asks: <b>Well?</b>" in shown
    assert (
        "tea once next never again Calls notify: Drink some water. Last 2026-01-01 08:00:00 UTC: failed It was refused."
        in shown
    )


async def test_the_owner_removes_what_a_butler_has_set_itself_and_the_file_s_stay(
    house: House, console: Running
) -> None:
    morning = schedules.Schedule(name="dawn", zone="UTC", cron="0 5 * * *", prompt="Well?")
    due = datetime(2199, 1, 2, 5, tzinfo=UTC)
    await schedules.follow(house.sql, "greeter", morning, None, due)
    await schedules.add_own(house.sql, "greeter", replace(morning, name="each-minute"), due)
    html = await page(console, "/butlers/greeter")
    assert 'name="remove" value="each-minute"' in html
    assert 'name="remove" value="dawn"' not in html
    for name in ("each-minute", "dawn"):
        assert (await console.post("/butlers/greeter", **fields(html) | {"remove": name})).status == 303
    left = await house.sql.fetch("SELECT name FROM shared.schedules WHERE name IN ('dawn', 'each-minute')")
    assert [row["name"] for row in left] == ["dawn"]


async def test_the_button_asks_for_the_end_once(house: House, console: Running, message: str) -> None:
    session_id = await enqueue(house, message)
    form = fields(await page(console, "/butlers/greeter")) | {"stop": session_id}
    assert (await console.post("/butlers/greeter", **form)).status == 303
    assert await house.sql.fetchval("SELECT stop_asked_at FROM shared.sessions WHERE id = $1", UUID(session_id))
    assert "being stopped" in plain(await page(console, "/butlers/greeter"))
    await house.sql.execute(
        "UPDATE shared.sessions SET status = 'stopped', ended_at = clock_timestamp() WHERE id = $1", UUID(session_id)
    )
    late = await console.post("/butlers/greeter", **form)
    assert (late.status, "This session has ended" in await late.text()) == (409, True)


async def test_a_form_of_another_s_session_or_without_sense_stops_nothing(
    house: House, console: Running, message: str
) -> None:
    session_id = await enqueue(house, message)
    form = fields(await page(console, "/butlers/greeter"))
    for wrong, status in (
        ({"stop": session_id, "csrf": "x"}, 403),
        ({"stop": "x"}, 400),
        ({"stop": str(uuid4())}, 400),
    ):
        assert (await console.post("/butlers/greeter", **form | wrong)).status == status
    assert (await console.post("/butlers/health", **form | {"stop": session_id})).status == 400
    assert not await house.sql.fetchval("SELECT stop_asked_at FROM shared.sessions WHERE id = $1", UUID(session_id))


@pytest.mark.parametrize("name", ["nobody", "Greeter", "..%2f", "switchboard"])
async def test_there_is_no_page_of_whoever_is_no_butler(console: Running, name: str) -> None:
    await page(console, f"/butlers/{name}", 404)


async def test_the_last_day_that_was_told_is_drawn_and_what_is_no_day_is_not(house: House, console: Running) -> None:
    await house.sql.execute(RUNNING + " ON CONFLICT DO NOTHING")
    seconds = [0] * 18 + [1800, 900] + [0] * 28
    await state.put(house.sql, "greeter", KEY, {"date": "2025-01-20", "seconds": seconds}, None)
    html = await page(console, "/butlers/greeter")
    assert html.count("<rect ") == 2
    assert 'x="18.1" y="0.00" width=".8" height="12.00"' in html
    assert 'aria-label="45 min at the computer between 09:00 and 10:00"' in html
    assert "Monday 20 January 2025" in plain(html)
    await state.put(house.sql, "greeter", KEY, {"date": "<script>", "seconds": seconds}, None)
    assert "<svg" not in await page(console, "/butlers/greeter")
