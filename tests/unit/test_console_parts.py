"""The console's parts without a database: the password, the doorstep, safe addresses, words, and the last resort."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from butlers.console.labels import ago, count, span
from butlers.console.middleware import HEADERS, Doorstep, Guard, host_name
from butlers.console.pages.sign_in import code_of
from butlers.console.queries.deliveries import FILTERS
from butlers.console.session import safe_next
from butlers.console.templating import render_error
from shared.auth.password import check_password, demand_fit
from shared.config.settings import Secret
from shared.display.fates import DELIVERY
from shared.errors import InvalidInput, Misconfigured
from shared.model import STATUSES


def test_the_password_counts_however_its_letters_are_composed() -> None:
    configured = Secret("Grüße, ihr Butler")
    assert check_password("Gru\u0308ße, ihr Butler", configured)
    for wrong in ("Grüße, ihr Butle", "", "x" * 2000, "\ud800"):
        assert not check_password(wrong, configured)
    with pytest.raises(Misconfigured, match="The console has no password"):
        check_password("", None)


class Watched(str):
    """A text that may be hashed, and must be compared with nothing."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise AssertionError("the password was compared, letter by letter")

    def startswith(self, *_: object) -> bool:
        raise AssertionError("the password was looked into")

    def encode(self, *how: str) -> bytes:
        return str(self).encode(*how)

    def __str__(self) -> str:
        return "".join(self)


def test_the_password_is_never_compared_as_it_is() -> None:
    configured = Secret(Watched("from the setting"))
    for given_password, right in (("from the setting", True), ("from the settinG", False), ("f", False), ("", False)):
        assert check_password(given_password, configured) is right


def test_every_state_of_a_delivery_has_its_words_and_each_filter_is_a_state() -> None:
    assert set(DELIVERY) == set(STATUSES)
    assert {state for state, _ in FILTERS} <= {"", *STATUSES}


@pytest.mark.parametrize(
    ("pasted", "code"),
    [
        ("abc-_1", "abc-_1"),
        ("  abc ", "abc"),
        ("http://127.0.0.1:41102/sign-in?code=abc", "abc"),
        ("https://butlers.example/sign-in?code=a%2Bc&x=1", "a+c"),
        ("http://[", ""),
        ("", ""),
        ("?code=", "?code="),
    ],
)
def test_a_link_is_pasted_whole_or_as_its_code(pasted: str, code: str) -> None:
    assert code_of(pasted) == code


@pytest.mark.parametrize("password", ["", "seven77", "x" * 1025])
def test_too_short_and_too_long_passwords_are_refused(password: str) -> None:
    with pytest.raises(InvalidInput, match="between 8 and 1024"):
        demand_fit(Secret(password))


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost", "localhost"),
        ("LOCALHOST:80", "localhost"),
        ("[::1]:8080", "[::1]"),
        ("", ""),
        ("a@localhost", ""),
        ("localhost/x", ""),
        ("localhost:99999", ""),
        ("localhost:x", ""),
        ("[::1", ""),
        ("localhost?x", ""),
        ("localhost#x", ""),
    ],
)
def test_a_host_header_is_read_strictly(header: str, name: str) -> None:
    assert host_name(header) == name


def origin(value: str | None, *, host: str = "127.0.0.1:41102", site: str | None = None) -> Headers:
    fields = {"host": host, "origin": value, "sec-fetch-site": site}
    return Headers({name: text for name, text in fields.items() if text is not None})


def test_a_post_counts_with_our_own_or_the_public_origin_only() -> None:
    private = Doorstep.of(frozenset(), None, None)
    public = Doorstep.of(frozenset(), "https://Butlers.example/", None)
    assert private.is_ours("http", origin("http://127.0.0.1:41102"))
    assert private.is_ours("http", origin("http://LOCALHOST", host="localhost:80"))
    assert public.is_ours("http", origin("https://butlers.example", host="butlers.example"))
    for stranger in (
        "https://butlers.example",
        "https://127.0.0.1:41102",
        "http://127.0.0.1:41103",
        "x",
        "",
        "file://",
    ):
        assert not private.is_ours("http", origin(stranger)), stranger
    assert not private.is_ours("http", origin("https://evil.test", site="same-origin"))
    for nothing in (None, "null"):
        assert private.is_ours("http", origin(nothing, site="same-origin"))
        assert not private.is_ours("http", origin(nothing, site="same-site"))
        assert not private.is_ours("http", origin(nothing))


@pytest.mark.parametrize("path", ["/", "/approvals/1?x=1#y", "/a//b"])
def test_after_sign_in_our_own_pages_may_follow(path: str) -> None:
    assert safe_next(path) == path


@pytest.mark.parametrize(
    "path",
    ["", "//evil.test", "https://evil.test", "/\\evil.test", "/\nx", "\t//evil.test", "x", "/é", "/" + "x" * 2000],
)
def test_after_sign_in_nobody_elses_page_follows(path: str) -> None:
    assert safe_next(path) == "/"


@given(st.floats(min_value=-10, max_value=10**8))
def test_every_length_of_time_has_words(seconds: float) -> None:
    assert 1 <= len(span(seconds).split()) <= 5
    assert ago(seconds) == "just now" or ago(seconds).endswith(" ago")


def test_times_and_counts_are_said_plainly() -> None:
    assert [span(s) for s in (-5, 59, 60, 3600, 3660, 86400, 90000, 86460, 259199)] == [
        "less than a minute",
        "less than a minute",
        "1 minute",
        "1 hour",
        "1 hour 1 minute",
        "1 day",
        "1 day 1 hour",
        "1 day",
        "2 days 23 hours",
    ]
    assert [ago(s) for s in (-1, 59, 61, 7200, 90000)] == [
        "just now",
        "just now",
        "1 minute ago",
        "2 hours ago",
        "1 day ago",
    ]
    assert [count(n, "daemon", "daemons") for n in (0, 1, 2)] == ["0 daemons", "1 daemon", "2 daemons"]


async def answer_of(guard: Guard, path: str = "/") -> tuple[int, dict[str, str], str]:
    """What a guarded app answers to a GET."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "scheme": "http",
        "headers": [(b"host", b"localhost")],
    }
    await guard(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent).decode()


def guarded(app: Response | None) -> Guard:
    async def fails(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ZeroDivisionError("secret detail")

    return Guard(app or fails, doorstep=Doorstep.of(frozenset(), None, None), error_page=render_error)


async def test_what_fails_unforeseen_is_a_page_of_two_sentences() -> None:
    status, headers, page = await answer_of(guarded(None))
    assert status == 500
    assert "Something went wrong in the console. Try again; its log has the details." in page
    assert "secret detail" not in page
    assert "Traceback" not in page
    assert headers.items() >= {name.lower(): value for name, value in HEADERS.items()}.items()


async def test_nothing_but_static_files_may_be_stored() -> None:
    said = {"Cache-Control": "public, max-age=60"}
    for path, wanted in (("/", "no-store"), ("/static/x", "no-cache")):
        _, headers, _ = await answer_of(guarded(PlainTextResponse("x", headers=said)), path)
        assert headers["cache-control"] == wanted
