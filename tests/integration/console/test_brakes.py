"""The brake on the console's pages: seen on each, pulled by anybody signed in, lifted by who has just proved it."""

import re
from uuid import uuid4

from tests.integration.console_runner import Running
from tests.integration.peopled import peopled
from tests.integration.signed_in import page, plain

STALE = "UPDATE console.sessions SET proved_at = proved_at - interval '11 minutes'"
ON = "SELECT count(*) FROM shared.brakes WHERE lifted_at IS NULL"
LINES = """
SELECT event_type FROM shared.approval_events WHERE event_type IN ('brake_on', 'brake_off') AND actor = 'owner'
ORDER BY seq
"""
ONE = "INSERT INTO shared.brakes (butler) VALUES ('greeter') RETURNING id::text"
SCOPED = """
INSERT INTO shared.brakes (butler, contact_id, channel, until, made_by)
SELECT 'greeter', id, 'telegram', clock_timestamp() + interval '2 hours', id FROM shared.contacts
WHERE 'owner' = ANY (roles)
"""
RESTORED = "INSERT INTO shared.brakes (reason) VALUES ('restored')"
OVER = "INSERT INTO shared.brakes (until) VALUES (clock_timestamp() - interval '1 s') RETURNING id::text"
LIFT = re.compile(r'name="brake" value="([0-9a-f-]{36})"')


async def test_every_page_pauses_and_shows_each_brake_with_its_own_lift(console: Running) -> None:
    ids = await peopled(console, "Owner")
    await console.sign_in()
    pages = [*ids.pages(), "/nothing/here"]
    for path in pages:
        html = await page(console, path, 404 if path == "/nothing/here" else 200)
        assert ('name="do" value="pause"' in html, "Sending is paused" in html) == (True, False), path
    await console.sql.execute(SCOPED)
    await console.sql.execute(RESTORED)
    over = await console.sql.fetchval(OVER)
    for path in pages:
        html = await page(console, path, 404 if path == "/nothing/here" else 200)
        assert 'name="do" value="pause"' not in html, path
        assert (len(LIFT.findall(html)), over in html) == (2, False), path
        words = plain(html)
        assert "Messages from greeter to Owner by telegram wait. Put on just now by you, until 20" in words, path
        assert "A backup was restored." in words, path
        assert "by the Messenger" in words, path


async def test_pausing_and_lifting_are_the_command_lines_own_and_leave_its_lines(console: Running) -> None:
    await console.sign_in()
    csrf = await console.csrf()
    paused = await console.post("/brake", csrf=csrf, do="pause", next="/deliveries?status=sent")
    assert (paused.status, paused.headers["Location"]) == (303, "/deliveries?status=sent")
    row = await console.sql.fetchrow("SELECT butler, contact_id, channel, owner_too, until FROM shared.brakes")
    assert row is not None
    assert tuple(row) == (None, None, None, False, None)
    other = await console.sql.fetchval(ONE)
    (first, second) = LIFT.findall(await page(console, "/"))
    assert second == other
    for _ in range(2):  # a second press finds it lifted
        lifted = await console.post("/brake", csrf=csrf, do="lift", brake=first, next="//evil.test")
        assert (lifted.status, lifted.headers["Location"]) == (303, "/")
    assert LIFT.findall(await page(console, "/")) == [other]
    assert [line["event_type"] for line in await console.sql.fetch(LINES)] == ["brake_on", "brake_off"]


async def test_nobody_lifts_a_brake_without_a_session_its_form_and_a_fresh_proof(console: Running) -> None:
    await peopled(console)
    brake = await console.sql.fetchval(ONE)
    await console.sign_in()
    csrf = await console.csrf()
    for wrong in ({"csrf": ""}, {"csrf": "x" * 22}):
        assert (await console.post("/brake", do="lift", brake=brake, **wrong)).status == 403
    for odd in ({"do": "lift"}, {"do": "lift", "brake": "x"}, {"do": "pause", "brake": brake}, {"brake": brake}):
        assert (await console.post("/brake", csrf=csrf, **odd)).status == 400
    assert (await console.post("/brake", csrf=csrf, do="lift", brake=str(uuid4()))).status == 303
    await console.sql.execute(STALE)
    answer = await console.post("/brake", csrf=csrf, do="lift", brake=brake, next="/rules")
    assert answer.headers["Location"] == "/confirm?next=%2Frules"
    assert (await console.post("/brake", csrf=csrf, do="pause")).headers["Location"] == "/"  # stopping needs no proof
    console.http.cookie_jar.clear()
    answer = await console.post("/brake", csrf=csrf, do="lift", brake=brake)
    assert (answer.status, answer.headers["Location"]) == (303, "/sign-in")
    assert await console.sql.fetchval(ON) == 2


async def test_what_is_not_there_is_said_with_the_way_to_every_page_and_to_a_stranger_without(
    console: Running,
) -> None:
    for signed_in in (False, True):
        html = await page(console, "/nothing/here", 404)
        assert "Page not found." in html
        assert ('<nav aria-label="Pages">' in html) is signed_in
        await console.sign_in()
