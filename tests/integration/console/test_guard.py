"""What strangers, scanners and other pages try on a console that is really served; it changes nothing for them."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit
from uuid import uuid4

import aiohttp
import pytest
from starlette.routing import Route

from butlers.console.middleware import HEADERS
from butlers.console.storage.sessions import make_sign_in_link
from tests.integration.console_runner import PASSWORD, Running, browsing, running
from tests.integration.peopled import Ids, peopled
from tests.rig.cluster import Cluster
from tests.rig.rows import every_row
from tests.rig.waiting import LONGEST


def routes(console: Running, method: str) -> set[str]:
    return {route.path for route in console.app.routes if isinstance(route, Route) and method in (route.methods or ())}


def test_the_forms_tried_here_are_all_there_are() -> None:
    from butlers.console.app import _routes  # noqa: PLC0415  # what is looked at, not used

    text = Path(str(_routes.__code__.co_filename)).read_text(encoding="utf-8")
    # What a desk posts is no form: it comes with a token.
    posts = {path for path in re.findall(r'\("(/[^"]*)", [\w.]+, "POST"\)', text) if not path.startswith("/desk/")}
    tried = {re.sub("/x$", "/{id}", path) for path in Ids("x", "x", "x", "x", "x", "x").forms()}
    assert posts == tried


async def raw(console: Running, request: bytes) -> tuple[int, bytes]:
    """The status and the whole answer to exactly these bytes; 0 where the connection is just closed."""
    parts = urlsplit(console.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(request)
        await writer.drain()
        async with asyncio.timeout(LONGEST):
            answer = await reader.read()
    except ConnectionError:
        answer = b""
    finally:
        writer.close()
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0, answer


# --- who is signed in


async def test_a_session_is_never_one_that_somebody_else_chose(console: Running) -> None:
    opened = await console.get("/sign-in")
    assert "Set-Cookie" not in opened.headers
    answer = await console.post("/sign-in", password=PASSWORD)
    (mine,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    console.http.cookie_jar.clear()
    for chosen in ("attacker", mine.value.upper(), "", "a" * 5000):
        async with aiohttp.ClientSession(cookies={mine.key: chosen}) as victim:
            signed = await console.send("/sign-in", {"password": PASSWORD}, {"Origin": console.url}, victim)
            (given,) = SimpleCookie(signed.headers["Set-Cookie"]).values()
            assert given.value not in {chosen, mine.value}
            assert len(given.value) == 64
        async with aiohttp.ClientSession(cookies={mine.key: chosen}) as attacker:
            assert (await attacker.get(f"{console.url}/", allow_redirects=False)).status == 303
    async with aiohttp.ClientSession(cookies={mine.key: mine.value}) as again:
        await console.send("/sign-in", {"password": PASSWORD}, {"Origin": console.url}, again)
        stale = await again.get(f"{console.url}/", cookies={mine.key: mine.value}, allow_redirects=False)
        assert stale.status == 303  # what was signed in before ended with the new sign-in


async def test_over_tls_the_cookie_is_bound_to_this_host_alone(cluster: Cluster, tmp_path: Path) -> None:
    async with running(cluster, tmp_path, BUTLERS_PUBLIC_URL="https://butlers.example") as console:
        headers = {"Host": "butlers.example", "Origin": "https://butlers.example"}
        answer = await console.send("/sign-in", {"password": PASSWORD}, headers)
        (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
        assert cookie.key.startswith("__Host-butlers_")
        assert (cookie["secure"], cookie["httponly"], cookie["samesite"]) == (True, True, "strict")
        assert (cookie["path"], cookie["domain"]) == ("/", "")
        headers["Cookie"] = f"{cookie.key}={cookie.value}"
        page = await (await console.http.get(f"{console.url}/", headers=headers)).text()
        csrf = page.split('name="csrf" value="')[1].split('"')[0]
        # The same id under the name for plain connections is nobody's.
        plain = {**headers, "Cookie": f"{cookie.key.removeprefix('__Host-')}={cookie.value}"}
        assert (await console.http.get(f"{console.url}/", headers=plain, allow_redirects=False)).status == 303
        out = await console.send("/sign-out", {"csrf": csrf}, headers)
        (gone,) = SimpleCookie(out.headers["Set-Cookie"]).values()
        assert (gone.key, gone["max-age"], gone["secure"], gone["path"]) == (cookie.key, "0", True, "/")
        assert (await console.http.get(f"{console.url}/", headers=headers, allow_redirects=False)).status == 303


async def test_a_forms_token_is_worth_nothing_in_another_session(console: Running) -> None:
    ids = await peopled(console)
    await console.sign_in()
    other = await console.csrf()
    console.http.cookie_jar.clear()
    await console.sign_in()
    assert await console.csrf() != other
    before = await every_row(console.sql)
    for path, fields in ids.forms().items():
        if path != "/sign-in":
            for csrf in (other, "", PASSWORD):
                answer = await console.post(path, csrf=csrf, **fields)
                assert (answer.status, "belongs to another session" in await answer.text()) == (403, True), path
    assert await every_row(console.sql) == before


async def test_guessing_at_once_never_gets_past_the_limit_nor_shuts_a_link_out(console: Running) -> None:
    async with console.context.db.work() as connection:
        for n in range(3):
            await make_sign_in_link(connection, console.url, f"link {n}")
    guesses = [console.post("/sign-in", password=f"guess {n}") for n in range(30)]
    links = [console.post("/sign-in", code=f"link {n}") for n in range(3)]
    answers = await asyncio.gather(*guesses, *links)
    statuses = [answer.status for answer in answers]
    assert sorted(statuses[:30]) == [403] * 5 + [429] * 25
    assert statuses[30:] == [303] * 3
    # To confirm is to sign in, so it is counted with the rest.
    assert (await console.post("/sign-in", password=PASSWORD, next="/rules")).status == 429


# --- where a request comes from

ELSEWHERE: Sequence[Mapping[str, str]] = (
    {},
    {"Origin": "https://evil.test"},
    {"Origin": "null"},
    {"Origin": "http://["},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "OURS", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "OURS", "Sec-Fetch-Site": "same-site"},
    {"Origin": "OURS", "Sec-Fetch-Site": "none"},
    {"Origin": "OURS", "Referer": "https://evil.test/"},
    {"Origin": "OURS", "Referer": "OURS.evil.test/"},
    {"Origin": "OURS@evil.test"},
    {"Origin": "OURS.evil.test"},
    {"Referer": "OURS/"},
    {"Sec-Fetch-Site": "same-origin", "Referer": "https://evil.test/"},
    {"Sec-Fetch-Site": "same-site"},
)


async def test_no_form_counts_that_a_page_of_somebody_else_sent(console: Running) -> None:
    ids = await peopled(console)
    await console.sign_in()
    async with console.context.db.work() as connection:
        await make_sign_in_link(connection, console.url, "unused")
    csrf, before = await console.csrf(), await every_row(console.sql)
    assert len(before) > 20
    for (path, fields), said in itertools.product(ids.forms().items(), ELSEWHERE):
        headers = {name: value.replace("OURS", console.url) for name, value in said.items()}
        answer = await console.send(f"{path}", {**fields, "csrf": csrf}, headers)
        assert answer.status == 403, (path, said)
    assert await every_row(console.sql) == before
    ours = {"Origin": console.url, "Sec-Fetch-Site": "same-origin", "Referer": f"{console.url}/rules"}
    answer = await console.send("/rules", {"csrf": csrf, "do": "add", "recipient": "4242"}, ours)
    assert answer.headers["Location"].startswith("/rules/")


async def test_no_page_is_part_of_somebody_elses_page(console: Running) -> None:
    await console.sign_in()
    for site, mode, dest in (
        ("cross-site", "navigate", "iframe"),
        ("same-site", "navigate", "iframe"),
        ("same-site", "no-cors", "image"),
        ("same-site", "no-cors", "script"),
        ("cross-site", "cors", "empty"),
    ):
        told = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": dest}
        for path in ("/", "/rules", "/events", "/static/console.css"):
            assert (await console.get(path, **told)).status == 403, (path, dest)
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert (await console.get("/", **link)).status == 200


async def test_another_host_name_gets_no_page_whatever_it_asks(console: Running) -> None:
    ids = await peopled(console)
    await console.sign_in()
    before, csrf = await every_row(console.sql), await console.csrf()
    for host in ("evil.test", "localhost.evil.test", "127.0.0.1.evil.test:80", "[::ffff:1.2.3.4]", "a b"):
        for path in (*ids.pages(), "/healthz", "/metrics", "/static/console.css", "/sign-in"):
            assert (await console.get(path, Host=host)).status in {400, 421}, (host, path)
        headers = {"Host": host, "Origin": f"http://{host}"}
        for path, fields in ids.forms().items():
            data = {**fields, "csrf": csrf}
            answer = await console.send(f"{path}", data, headers)
            assert answer.status in {400, 421}, (host, path)
    status, _ = await raw(console, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert status in {400, 421}
    assert await every_row(console.sql) == before


# --- looking changes nothing


def plausible(ids: Ids, csrf: str) -> Iterator[str]:
    """Addresses such as scanners, prefetchers and pranksters open."""
    forms = list(ids.forms("unused").items())
    for n in itertools.count():
        yield from ids.pages()
        for path, fields in forms:
            query = "&".join(f"{name}={quote(value)}" for name, value in {**fields, "csrf": csrf}.items())
            yield f"{path}?{query}"
            yield f"{path}?{query}&_method=POST&n={n}"
        yield f"/sign-in?code=unused&next=/rules&n={n}"
        yield f"/confirm?next=/rules?recipient={n}"
        yield f"/rules?do=test&recipient=4242&csrf={csrf}&n={n}"
        yield f"/deliveries?status={('', 'uncertain', 'burnt')[n % 3]}"
        yield from ("/events", "/healthz", "/readyz", "/metrics", "/static/htmx.min.js", f"/approvals/{uuid4()}", "/x")


@pytest.mark.whole
async def test_looks_of_all_kinds_change_no_row(console: Running, whole: bool) -> None:  # noqa: FBT001
    ids = await peopled(console)
    await console.sign_in()
    async with console.context.db.work() as connection:
        await make_sign_in_link(connection, console.url, "unused")
    csrf, before = await console.csrf(), await every_row(console.sql)
    waiting, statuses = asyncio.Semaphore(8), set[int]()
    override = {"X-HTTP-Method-Override": "POST", "X-Method-Override": "POST", "Origin": console.url}

    async def look(path: str, method: str) -> None:
        async with (
            waiting,
            console.http.request(method, f"{console.url}{path}", headers=override, allow_redirects=False) as answer,
        ):
            statuses.add(answer.status)
            if not path.startswith("/events"):
                await answer.read()

    paths = itertools.islice(plausible(ids, csrf), 500 if whole else 150)
    await asyncio.gather(*(look(path, method) for path in paths for method in ("GET", "HEAD")))
    assert statuses == {200, 303, 400, 404, 405}
    assert await every_row(console.sql) == before
    assert (await console.post("/sign-in", code="unused")).status == 303


async def test_forms_without_a_session_decide_nothing(console: Running) -> None:
    ids = await peopled(console)
    before, waiting = await every_row(console.sql), asyncio.Semaphore(8)
    forms = [(path, fields) for path, fields in ids.forms().items() if path != "/sign-in"]

    async def press(stranger: aiohttp.ClientSession, n: int) -> None:
        path, fields = forms[n % len(forms)]
        headers = [{}, {"Origin": console.url}, {"Origin": "https://mail.test"}][n % 3]
        async with waiting:
            answer = await console.send(path, {**fields, "csrf": "x" * 22}, headers, stranger)
        assert (answer.status, answer.headers.get("Location")) in {(403, None), (303, "/sign-in")}, (path, headers)

    async with browsing() as stranger:
        await asyncio.gather(*(press(stranger, n) for n in range(6 * len(forms))))
    assert await every_row(console.sql) == before


# --- strange requests


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.test", "///evil.test", "/\\evil.test", "\\\\evil.test", "https://evil.test", "https:evil.test",
        "/\t/evil.test", "/\r\nSet-Cookie: a=b", "/%0d%0aSet-Cookie:%20a=b", "javascript:alert(1)", "/\u2028",
        "@evil.test", ".evil.test", "/" + "a" * 3000, "/..//evil.test", "http:/\\evil.test", " /x",
    ],
)  # fmt: skip
async def test_no_sign_in_leads_to_another_site_or_writes_a_header(console: Running, wanted: str) -> None:
    answers = [await console.post("/sign-in", password=PASSWORD, next=wanted)]
    answers += [await console.get(f"{path}?next={quote(wanted)}") for path in ("/sign-in", "/confirm")]
    for answer in answers:
        assert answer.status == 303
        there = urlsplit(urljoin(f"{console.url}/sign-in", answer.headers["Location"]))
        assert f"{there.scheme}://{there.netloc}" == console.url
        assert [name for name in answer.headers if name == "a"] == []
        assert len(answer.headers.getall("Set-Cookie", [])) <= 1
    console.http.cookie_jar.clear()
    bounced = await console.get(f"/approvals?next={quote(wanted)}", Sec_Fetch_Site="cross-site")
    assert 'content="0; url=/' in await bounced.text()


PATHS = (
    b"/%2e%2e/%2e%2e/etc/passwd", b"/../../etc/passwd", b"/static/%2e%2e/app.py", b"/static/..%2f..%2fapp.py",
    b"/static/..\\app.py", b"/static/%00", b"/static//etc/passwd", b"/static/%2fetc%2fpasswd", b"/%00",
    b"/approvals/%00",
    b"/static/" + b"a" * 5000, b"/approvals/%2e%2e", b"/approvals/..;/contacts", b"//", b"//evil.test/", b"/./sign-in",
    b"/approvals/" + b"a" * 30000, b"/approvals//", b"/sign-in/", b"/SIGN-IN", b"/sign-in%20", b"/%ff%fe",
    b"/approvals/%ED%A0%80", b"/contacts/%7B%7D", b"/rules/urn:uuid:x", b"/sign-in?%00=%00", b"/sign-in?next=%ff",
    b"/deliveries?status=%00", b"/rules?from=%00", b"http://evil.test/", b"*", b"/approvals/\xc3\xa9",
)  # fmt: skip


async def test_strange_paths_are_no_page_and_no_fault(console: Running) -> None:
    await console.sign_in()
    (cookie,) = console.http.cookie_jar
    head = f"Host: {urlsplit(console.url).netloc}\r\nCookie: {cookie.key}={cookie.value}\r\nConnection: close\r\n\r\n"
    for path, method in itertools.product(PATHS, (b"GET", b"HEAD")):
        status, answer = await raw(console, method + b" " + path + b" HTTP/1.1\r\n" + head.encode())
        assert status in {0, 200, 303, 400, 404, 405, 414, 431}, (path, answer[:200])
        for never in (b"Traceback", b"root:", b"create_app", b"Starlette", b"asyncpg"):
            assert never not in answer, path
    told = b"GET /events?seen=%0d%0adata:x HTTP/1.1\r\n" + head.replace("Connection: close", "X: \x01").encode()
    assert (await raw(console, told))[0] in {0, 400}


FORMS = (
    (b"word=approve&revision=1%00", 400), (b"%00=1", 400), (b"word=%ED%A0%80", 400), (b"word=%ff", 400),
    (b"\xff\xfe", 400), (b"&".join(b"a%d=1" % n for n in range(60)), 400), (b"csrf=" + b"a" * 300_000, 413),
    (b"a=" * 200_000, 413), (b"", 403), (b"&&&&", 403), (b"=", 403), (b"csrf=a&csrf=b", 403), (b"csrf[]=a", 403),
    (b"%", 403), (b"csrf=%F0%9F%98%80", 403),
)  # fmt: skip


async def test_strange_forms_are_refused_in_two_sentences(console: Running, capsys: pytest.CaptureFixture[str]) -> None:
    ids = await peopled(console)
    await console.sign_in()
    before, headers = await every_row(console.sql), {"Origin": console.url}
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    for path, (body, expected) in itertools.product([*ids.forms()][:-1], FORMS):
        answer = await console.send(path, body, {**headers, **kind})
        assert answer.status == expected, (path, body[:40])
        assert answer.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
        assert '<p><a href="/">Go to the start page</a></p>' in await answer.text()
    for other in ("application/json", "multipart/form-data; boundary=x", "text/plain", "", "x"):
        answer = await console.send("/rules", b"csrf=1", {**headers, "Content-Type": other})
        assert answer.status == 400, other

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(80):
            yield b"a" * 5000

    answer = await console.send("/rules", endless(), {**headers, **kind})
    assert answer.status == 413
    assert "page failed" not in capsys.readouterr().out
    assert await every_row(console.sql) == before


async def test_odd_values_in_whole_forms_are_refused_or_kept_as_words(console: Running) -> None:
    ids = await peopled(console)
    await console.sign_in()
    csrf = await console.csrf()
    odd = (
        "\x01",
        "\u202e",
        "\ufffe",
        "'; DROP TABLE shared.contacts; --",
        "9" * 400,
        "\U0001f600",
        "-0",
        "1e9",
        "../..",
    )
    for (path, fields), value in itertools.product(ids.forms().items(), odd):
        if path in {"/sign-in", "/sign-out"} or path.startswith("/deliveries/"):
            continue  # a word on a delivery is waited for
        for name in [*fields, "contact_id", "expires", "from", "shown", "reason"]:
            answer = await console.post(path, **{**fields, name: value, "csrf": csrf})
            assert answer.status in {303, 400, 403, 404, 409}, (path, name, value, await answer.text())
