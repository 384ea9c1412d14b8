"""The console over HTTP as a browser, a stranger and a mail scanner meet it, on a real database in its own role."""

import asyncio
import json
import re
from contextlib import aclosing
from datetime import timedelta
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from butlers.console.app import end_streams
from butlers.console.middleware import HEADERS
from butlers.console.storage.sessions import make_sign_in_link
from shared.config.timings import STANDARD
from switchboard.storage import registry
from tests.integration.console_runner import PASSWORD, Running, events_of, running
from tests.integration.signed_in import plain
from tests.rig.cluster import Cluster
from tests.rig.waiting import LONGEST

SECRET_TEXT = "Only the owner may read this."


async def link_of(console: Running, code: str) -> str:
    async with console.context.db.work() as connection:
        url = await make_sign_in_link(connection, f"{console.url}/", code)
    return url.removeprefix(console.url)


async def failures(console: Running) -> int:
    counted = await console.sql.fetchval("SELECT count(*) FROM console.failed_sign_ins")
    assert isinstance(counted, int)
    return counted


async def test_a_stranger_is_led_to_the_sign_in_page_and_learns_nothing(console: Running) -> None:
    await console.park(message=SECRET_TEXT)
    answer = await console.get("/")
    assert (answer.status, answer.headers["Location"]) == (303, "/sign-in")
    assert await answer.text() == ""
    assert (await console.get("/events", Accept="text/event-stream")).status == 401
    swapped = await console.get("/", HX_Request="true")
    assert (swapped.status, swapped.headers["HX-Redirect"], await swapped.text()) == (401, "/sign-in", "")
    assert SECRET_TEXT not in await (await console.get("/sign-in")).text()


async def test_the_password_signs_in_and_the_cookie_is_the_owners_alone(console: Running) -> None:
    answer = await console.post("/sign-in", password=PASSWORD, next="/?seen=1")
    assert (answer.status, answer.headers["Location"]) == (303, "/?seen=1")
    (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    assert cookie["httponly"] is True
    assert (cookie["samesite"], cookie["path"], cookie["max-age"]) == ("strict", "/", "2592000")
    assert not cookie["secure"]
    assert not cookie["domain"]
    page = await console.get("/")
    assert page.status == 200
    assert "You're all caught up." in await page.text()
    stored = await console.sql.fetchrow("SELECT id_sha, expires_at - made_at AS lasts FROM console.sessions")
    assert stored is not None
    assert cookie.value not in stored["id_sha"]
    assert stored["lasts"] == timedelta(days=30)
    assert (await console.get("/sign-in")).headers["Location"] == "/"


async def test_a_session_ends_by_its_time_and_by_a_new_sign_in(console: Running) -> None:
    await console.sign_in()
    old = next(iter(console.http.cookie_jar))
    await console.sign_in()
    assert await console.sql.fetchval("SELECT count(*) FROM console.sessions WHERE ended_at IS NULL") == 1
    async with aiohttp.ClientSession(cookies={old.key: old.value}) as stale:
        answer = await stale.get(f"{console.url}/", allow_redirects=False)
        assert answer.status == 303
    await console.sql.execute("UPDATE console.sessions SET expires_at = clock_timestamp()")
    assert (await console.get("/")).status == 303


async def test_the_sixth_wrong_password_in_a_minute_is_not_even_looked_at(console: Running) -> None:
    for _ in range(5):
        answer = await console.post("/sign-in", password="guess")
        assert answer.status == 403
        assert "Wrong password." in await answer.text()
    answer = await console.post("/sign-in", password=PASSWORD)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "60")
    assert "Too many wrong passwords" in await answer.text()
    assert await failures(console) == 5
    path = await link_of(console, "while-someone-guesses")
    assert path.startswith("/sign-in?code=")
    assert (await console.post("/sign-in", code="while-someone-guesses")).status == 303
    await console.sql.execute("UPDATE console.failed_sign_ins SET at = at - interval '61 seconds'")
    console.http.cookie_jar.clear()
    await console.sign_in()
    assert await failures(console) == 5  # the right password is no failure


async def test_guesses_at_the_same_moment_share_the_one_limit(cluster: Cluster, tmp_path: Path) -> None:
    async with running(cluster, tmp_path, BUTLERS_CONSOLE_PASSWORD="another long password") as console:
        answers = await asyncio.gather(*(console.post("/sign-in", password=f"guess {n}") for n in range(12)))
        assert sorted(answer.status for answer in answers) == [403] * 5 + [429] * 7


async def test_without_the_setting_there_is_no_password_whatever_was_set_before(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with running(cluster, tmp_path, BUTLERS_CONSOLE_PASSWORD=PASSWORD) as console:
        await console.sign_in()
    async with running(cluster, tmp_path, BUTLERS_CONSOLE_PASSWORD="") as console:
        answer = await console.post("/sign-in", password=PASSWORD)
        assert answer.status == 503
        assert "Sign in with the link `butlers sign-in` prints" in await answer.text()
        page = await (await console.get("/sign-in")).text()
        assert "No password is set." in page
        assert "<form" not in page


async def test_a_link_is_changed_by_no_get_and_works_once(console: Running) -> None:
    path = await link_of(console, "code-of-32-random-bytes")
    for _ in range(3):
        page = await console.get(path)
        assert page.status == 200
        assert "Set-Cookie" not in page.headers
        assert '<input type="hidden" name="code" value="code-of-32-random-bytes">' in await page.text()
    await console.http.head(f"{console.url}{path}")
    assert await console.sql.fetchval("SELECT count(*) FROM console.sign_in_links WHERE used_at IS NULL") == 1
    assert await console.sql.fetchval("SELECT count(*) FROM console.sessions") == 0
    both = await asyncio.gather(*(console.post("/sign-in", code="code-of-32-random-bytes") for _ in range(2)))
    assert sorted(answer.status for answer in both) == [303, 403]
    again = await console.post("/sign-in", code="code-of-32-random-bytes")
    assert again.status == 403
    assert "This sign-in link has been used or has expired." in await again.text()


async def test_a_link_runs_out_after_ten_minutes(console: Running) -> None:
    await link_of(console, "slow")
    assert await console.sql.fetchval("SELECT expires_at - made_at FROM console.sign_in_links") == timedelta(minutes=10)
    await console.sql.execute("UPDATE console.sign_in_links SET expires_at = clock_timestamp()")
    assert (await console.post("/sign-in", code="slow")).status == 403
    assert "code" not in str(
        await console.sql.fetch("SELECT code_sha FROM console.sign_in_links WHERE code_sha = 'slow'")
    )


@pytest.mark.parametrize("origin", ["https://evil.test", "http://127.0.0.1:1", "http://localhost", "null", None, "x"])
async def test_a_post_from_elsewhere_changes_nothing(console: Running, origin: str | None) -> None:
    await console.sign_in()
    csrf = await console.csrf()
    answer = await console.post("/sign-out", origin=origin, csrf=csrf)
    assert answer.status == 403
    assert "This request did not come from the console." in await answer.text()
    assert (await console.get("/")).status == 200


async def test_without_an_origin_the_browser_must_say_same_origin(console: Running) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("none", 403), ("same-origin", 303)):
        headers = {"Sec-Fetch-Site": site}
        answer = await console.http.post(
            f"{console.url}/sign-in", data={"password": PASSWORD}, headers=headers, allow_redirects=False
        )
        assert answer.status == status, site


async def test_a_form_of_another_session_is_refused_and_signing_out_ends_ours(console: Running) -> None:
    await console.sign_in()
    cookies = list(console.http.cookie_jar)
    for wrong in ("", "x" * 22, "é"):
        assert (await console.post("/sign-out", csrf=wrong)).status == 403
    csrf = await console.csrf()
    answer = await console.post("/sign-out", csrf=csrf)
    assert (answer.status, answer.headers["Location"]) == (303, "/sign-in")
    assert not list(console.http.cookie_jar)
    async with aiohttp.ClientSession(cookies={cookie.key: cookie.value for cookie in cookies}) as stolen:
        assert (await stolen.get(f"{console.url}/", allow_redirects=False)).status == 303


async def test_every_answer_carries_the_security_headers(console: Running) -> None:
    anonymous = [
        "/sign-in",
        "/sign-in?code=x",
        "/",
        "/nothing",
        "/healthz",
        "/readyz",
        "/static/console.css",
        "/static/",
    ]
    answers = [await console.get(path) for path in anonymous]
    answers.append(await console.get("/", Host="evil.test"))
    answers.append(await console.post("/sign-in", origin="https://evil.test"))
    answers.append(await console.post("/sign-in", password=PASSWORD))
    answers.append(await console.get("/"))
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.headers.getall(name) == [value], (answer.url, name)
        stored = "no-cache" if "/static/" in str(answer.url) else "no-store"
        assert answer.headers.getall("Cache-Control") == [stored], answer.url
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    page = await answers[-1].text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src=)", page)


async def test_only_our_own_host_names_are_answered(cluster: Cluster, tmp_path: Path) -> None:
    public = {"BUTLERS_PUBLIC_URL": "https://Butlers.example", "BUTLERS_ADVERTISE_URL": "http://console:41102"}
    async with running(cluster, tmp_path, **public) as console:
        for host in ("localhost:99", "127.0.0.1", "[::1]:1", "butlers.example", "BUTLERS.EXAMPLE:443", "console:41102"):
            assert (await console.get("/healthz", Host=host)).status == 200, host
        for host in ("evil.test", "butlers.example.evil.test", "x@localhost", "localhost:x", "127.0.0.1.evil.test"):
            assert (await console.get("/healthz", Host=host)).status == 421, host
        headers = {"Host": "butlers.example", "Origin": "https://butlers.example"}
        answer = await console.http.post(
            f"{console.url}/sign-in", data={"password": PASSWORD}, headers=headers, allow_redirects=False
        )
        cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith("__Host-butlers_")
        assert "; Secure" in cookie


async def test_a_link_followed_from_another_site_asks_once_more_by_itself(console: Running) -> None:
    answer = await console.get("/?from=mail", Sec_Fetch_Site="cross-site")
    assert answer.status == 200
    assert 'http-equiv="refresh" content="0; url=/?from=mail"' in await answer.text()
    again = await console.get("/?from=mail", Sec_Fetch_Site="same-origin")
    assert (again.status, again.headers["Location"]) == (303, "/sign-in?next=%2F%3Ffrom%3Dmail")


async def test_hostile_words_are_shown_as_words(console: Running) -> None:
    hostile = "</div><script>alert(1)</script> \u202egnp.exe &amp; <b>bold</b>\n  second line"
    await console.park(butler="cal<i>", message=hostile, subject='"><img src=x onerror=alert(1)>')
    await console.sql.execute("""
        INSERT INTO shared.contacts (id, name) VALUES ('00000000-0000-4000-8000-000000000009', E'A<i>\\u200b');
        UPDATE shared.notifications SET whom = 'contact:00000000-0000-4000-8000-000000000009';
    """)
    await console.sign_in()
    page = await (await console.get("/")).text()
    shown = "&lt;/div&gt;&lt;script&gt;alert(1)&lt;/script&gt; &lt;U+202E&gt;gnp.exe &amp;amp; &lt;b&gt;bold&lt;/b&gt;"
    assert f'role="group" aria-label="The text">{shown}\n  second line</div>' in page
    assert "&#34;&gt;&lt;img src=x onerror=alert(1)&gt;" in page
    assert "cal&lt;i&gt;" in page
    assert "A&lt;i&gt;&lt;U+200B&gt;" in page
    for never in ("<img src=x", "<script>", "<b>", "\u202e", "\u200b"):
        assert never not in page


async def test_a_long_message_is_listed_by_its_beginning_and_an_edited_one_as_it_would_go_out(
    console: Running,
) -> None:
    text = "word " * 1998 + "the end"
    action = await console.park(message=text)
    await console.sign_in()
    page = await (await console.get("/")).text()
    assert f"{text[:999]}…</div>" in page
    assert text in await (await console.get(f"/approvals/{action}")).text()
    await console.sql.execute(
        "UPDATE shared.notifications SET owner_text = 'Edited' WHERE id ="
        " (SELECT notification_id FROM shared.pending_actions WHERE id = $1::text::uuid)",
        action,
    )
    page = await (await console.get("/")).text()
    assert ">Edited</div>" in page
    assert "the end</div>" not in page


async def test_the_start_page_tells_what_needs_the_owner(console: Running) -> None:
    await console.sql.execute("""
        INSERT INTO shared.contacts (id, name) VALUES ('00000000-0000-4000-8000-000000000001', 'Rosa <Weiss>');
        INSERT INTO shared.contact_info (id, contact_id, type, value) VALUES
            ('00000000-0000-4000-8000-000000000002', '00000000-0000-4000-8000-000000000001', 'email', 'rosa@b.test');
        INSERT INTO switchboard.butlers (name, url, kind, last_seen_at) VALUES
            ('messenger', 'http://127.0.0.1:2', 'messenger', clock_timestamp()),
            ('greeter', 'http://127.0.0.1:9', 'butler', clock_timestamp() - interval '5 minutes'),
            ('sandbox', 'http://[', 'sandbox', clock_timestamp());
    """)
    await console.park(message="first", summary="It goes to Rosa.")
    await console.park(message="second")
    expired = await console.park(message="too late")
    await console.sql.execute(
        "UPDATE shared.pending_actions SET expires_at = clock_timestamp() WHERE id = $1::text::uuid", expired
    )
    await console.sql.execute("""
        UPDATE shared.notifications SET status = 'error',
            answer = '{"status": "error", "error": {"class": "forbidden", "message": "A rule forbids this."}}'
        WHERE envelope #>> '{delivery,message}' = 'second';
        INSERT INTO messenger.deliveries (notification_id, class, channel, address, status)
        SELECT id, 'third_party', 'email', 'rosa@b.test', 'uncertain' FROM shared.notifications
        WHERE envelope #>> '{delivery,message}' = 'second';
    """)
    await console.sign_in()
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", await (await console.get("/")).text()))
    assert "2 messages need your approval , 1 delivery is unconfirmed , 1 daemon is not responding" in page
    assert "first asked just now expires in 2 days 23 hours" in page
    assert "Rosa &lt;Weiss&gt; email · rosa@b.test" in page
    assert "Not delivered just now Answer to health: &#34;A rule forbids this.&#34;" in page
    assert "greeter silent http://127.0.0.1:9 5 minutes ago" in page
    assert "Waiting for approval" in page
    assert (await console.get("/approvals")).status == 200


# The Messenger died; the Switchboard said that it leaves, the greeter is at another place, and the cellar is gone.
SILENT: Final = """
INSERT INTO shared.keyring (name, public_key, retired_at) VALUES ('cellar', 'a key of old', clock_timestamp());
INSERT INTO switchboard.butlers (name, url, kind, status, has_runtime) VALUES
    ('messenger', 'http://127.0.0.1:2', 'messenger', 'ready', false),
    ('switchboard', 'http://127.0.0.1:3', 'switchboard', 'gone', false),
    ('greeter', 'http://127.0.0.1:4', 'butler', 'ready', true),
    ('greeter', 'http://127.0.0.1:5', 'butler', 'ready', true),
    ('cellar', 'http://127.0.0.1:6', 'butler', 'ready', true);
"""
HEARD_OF: Final = """
UPDATE switchboard.butlers SET last_seen_at = clock_timestamp()
    - CASE WHEN url LIKE '%:5' THEN interval '0' ELSE make_interval(secs => $1) END
"""


async def test_a_daemon_that_died_is_said_until_it_is_back_and_one_that_left_is_not(console: Running) -> None:
    await console.sql.execute(SILENT)
    await console.sign_in()
    said = list[list[str]]()
    for seconds in (5, 40, 70, 660, 300_000, 0):
        await console.sql.execute(HEARD_OF, float(seconds))
        await registry.tidy(console.sql, STANDARD)
        page = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", await (await console.get("/")).text()))
        said.append(re.findall(r"\d+ daemons? (?:is|are) not responding|\w+ silent", page))
    died = ["1 daemon is not responding", "messenger silent"]
    assert said == [[], died, died, died, died, []]


PAUSED: Final = """
INSERT INTO messenger.circuit_breakers (channel, reason, detail, since) VALUES
    ('telegram', 'unauthorized', 'Unauthorized', clock_timestamp() - interval '3 minutes'),
    ('email', 'unreachable', 'no route', NULL)
"""


async def test_the_start_page_names_a_channel_that_has_paused_itself_and_what_helps(console: Running) -> None:
    await console.sql.execute(PAUSED)
    await console.sign_in()
    page = plain(await (await console.get("/")).text())
    assert "1 channel is not working" in page
    assert "Telegram does not accept the bot's token. 3 minutes ago Reason given: Unauthorized" in page
    assert "Put the token that @BotFather shows into BUTLERS_TELEGRAM_TOKEN" in page
    assert "no route" not in page


async def test_the_start_page_counts_for_a_day_what_did_not_arrive(console: Running) -> None:
    ends = [("failed", 1, "owner"), ("expired", 2), ("bounced", 23), ("sent", 1), ("failed", 25)]
    for n, (status, hours, *of) in enumerate(ends):
        await console.park(message=f"message {n}")
        await console.sql.execute(
            """
            WITH n AS (UPDATE shared.notifications SET status = 'error', answer = '{"status": "error"}'
                WHERE envelope #>> '{delivery,message}' = $1 RETURNING id),
            q AS (DELETE FROM shared.pending_actions USING n WHERE notification_id = n.id)
            INSERT INTO messenger.deliveries (notification_id, class, channel, address, status, settled_at)
            SELECT id, $4, 'email', 'rosa@b.test', $2, clock_timestamp() - make_interval(hours => $3) FROM n
            """,
            f"message {n}",
            status,
            hours,
            *(of or ["third_party"]),
        )
    await console.sign_in()
    assert "3 messages were not delivered" in await (await console.get("/")).text()


async def test_a_phone_can_keep_the_console_on_its_home_screen(console: Running) -> None:
    page = await (await console.get("/sign-in")).text()
    found = re.search(r'<link rel="manifest" href="([^"]+)">', page)
    assert found is not None
    manifest = json.loads(await (await console.get(found[1])).text())
    assert (manifest["name"], manifest["start_url"], manifest["display"]) == ("Butlers", "/", "standalone")
    for icon in manifest["icons"]:
        assert (await console.get(icon["src"])).content_type == icon["type"]


async def test_the_sandbox_is_offered_where_a_channel_is_in_it_and_by_the_settings_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    channels = "UPDATE shared.channels SET realm = CASE channel WHEN 'telegram' THEN $1 ELSE $2 END"
    async with running(cluster, tmp_path, BUTLERS_SANDBOX_URL="http://127.0.0.1:3/x") as console:
        await console.sql.execute("""
            INSERT INTO switchboard.butlers (name, url, kind, last_seen_at)
            VALUES ('sandbox', 'http://127.0.0.1:4', 'sandbox', clock_timestamp())
        """)
        await console.sign_in()
        for realms, offered in ((("42", "sandbox"), True), (("42", "me@mail.test"), False)):
            await console.sql.execute(channels, *realms)
            page = await (await console.get("/")).text()
            assert (">Sandbox<" in page, 'href="http://127.0.0.1:3/"' in page) == (offered, offered)
            assert 'href="http://127.0.0.1:4' not in page


async def test_the_stream_tells_a_change_once_and_resumes_where_it_was(console: Running) -> None:
    await console.sign_in()
    page = await (await console.get("/")).text()
    seen = page.split('data-version="')[1].split('"')[0]
    async with (
        asyncio.timeout(LONGEST),
        console.http.get(f"{console.url}/events?seen={seen}") as stream,
        aclosing(events_of(stream)) as events,  # type: ignore[type-var]  # it is an async generator
    ):
        assert await anext(events) == {"retry": "1000"}
        await asyncio.sleep(0.35)  # three looks at an unchanged page say nothing
        await console.park(message="new")
        told = await anext(events)
        assert told["event"] == "changed"
        assert told["id"] != seen
        shown = await (await console.get("/")).text()
        while f'data-version="{told["id"]}"' not in shown:  # a look may come between two things that change at once
            told = await anext(events)
    async with (
        asyncio.timeout(LONGEST),
        console.http.get(f"{console.url}/events", headers={"Last-Event-ID": seen}) as stream,
        aclosing(events_of(stream)) as events,  # type: ignore[type-var]  # it is an async generator
    ):
        assert await anext(events) == {"retry": "1000"}
        assert (await anext(events))["id"] == told["id"]


async def test_a_stream_ends_with_its_session_and_with_the_console(console: Running) -> None:
    await console.sign_in()
    async with asyncio.timeout(LONGEST), console.http.get(f"{console.url}/events") as stream:
        await stream.content.readline()
        await console.post("/sign-out", csrf=await console.csrf())
        await stream.read()
    await console.sign_in()
    async with asyncio.timeout(LONGEST), console.http.get(f"{console.url}/events") as stream:
        await stream.content.readline()
        stopping = asyncio.Event()
        stopping.set()
        await end_streams(console.app, stopping)
        await stream.read()


async def test_health_is_told_to_anybody_and_nothing_else(console: Running) -> None:
    await console.park(message=SECRET_TEXT)
    assert await (await console.get("/healthz")).json() == {"status": "ok", "name": "console"}
    assert await (await console.get("/readyz")).json() == {"status": "ready", "troubles": []}
    await console.context.db.close()
    lost = await console.get("/readyz")
    assert (lost.status, await lost.json()) == (
        503,
        {"status": "not ready", "troubles": ["The database does not answer."]},
    )


async def test_a_lost_database_and_strange_requests_get_two_sentences(console: Running) -> None:
    await console.sign_in()
    too_long = await console.post("/sign-in", password="x" * 300_000)
    assert too_long.status == 413
    strange = await console.http.post(f"{console.url}/sign-in", json={}, headers={"Origin": console.url})
    assert (strange.status, "This form is not valid." in await strange.text()) == (400, True)
    assert (await console.http.put(f"{console.url}/", headers={"Origin": console.url})).status == 405
    missing = await console.get("/nothing/here")
    assert (missing.status, "Page not found." in await missing.text()) == (404, True)
    await console.context.db.close()
    lost = await console.get("/")
    assert lost.status == 503
    page = await lost.text()
    assert "The database cannot be reached now. Try again in a moment." in page
    assert "Traceback" not in page
