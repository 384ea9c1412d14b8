"""No log line shows a secret, whoever writes it; the metrics are the process's own."""

import io
import json
import logging
import os
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote

import pytest
import structlog

from shared.config.settings import MASK, Secret
from shared.errors import InvalidInput
from shared.telemetry import metrics
from shared.telemetry.logs import Unhurried, configure, logger, redacted, scrubbed
from tests.rig.logged import logged

TOKEN = "123456789:AAE_s3cr3t-s3cr3t-s3cr3t-s3cr3t-abcd"
JWT = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJzM2NyM3QifQ.c2lnbmF0dXJlLXMzY3IzdA"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A configured stream; afterwards the logging of the process is as it was."""
    with logged("plain s3cr3t words", "x") as into:
        yield into


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"token {TOKEN} given", f"token {MASK} given"),
        (f"https://api.telegram.org/bot{TOKEN}/sendMessage", f"https://api.telegram.org/bot{MASK}/sendMessage"),
        ("http://127.0.0.1:41103/bot1:s3cr3t/getMe", f"http://127.0.0.1:41103/bot{MASK}/getMe"),
        (f"/bot{TOKEN.replace(':', '%3A')}/getMe", f"/bot{MASK}/getMe"),
        ("Authorization: Bearer s3cr3t-s3cr3t", f"Authorization: Bearer {MASK}"),
        ("authorization: bearer s3cr3t-s3cr3t", f"authorization: Bearer {MASK}"),
        ("{'Authorization': 'Basic s3cr3t=='}", f"{{'Authorization': 'Basic {MASK}'}}"),
        (f"got {JWT}.", f"got {MASK}."),
        ("postgresql://someone:s3cr3t@db:5432/x", f"postgresql://someone:{MASK}@db:5432/x"),
        ("smtp://a:s3cr3t@with@at@mail", f"smtp://a:{MASK}@mail"),
        ("smtp://a:s3cr3t/with/slash@mail", f"smtp://a:{MASK}@mail"),
        ("smtp://:s3cr3t@mail", f"smtp://:{MASK}@mail"),
        ("host=/run password=s3cr3t user=a", f"host=/run password={MASK} user=a"),
        ("GET /x?token=s3cr3t&n=1", f"GET /x?token={MASK}&n=1"),
        ("-----BEGIN PRIVATE KEY-----\ns3cr3t\n-----END PRIVATE KEY-----\nrest", f"{MASK}\nrest"),
        ("-----BEGIN PRIVATE KEY-----\ns3cr3t", MASK),
    ],
)
def test_what_has_a_secrets_shape_is_masked(text: str, clean: str) -> None:
    assert scrubbed(text) == clean
    assert scrubbed(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "Delivered 3 parts at 12:34:56 to greeter.",
        "http://127.0.0.1:41103/chats/5000000000000001?a=b@c",
        "https://example.org:8080 answered for owner@example.org",
        "019aa5f6-7f6c-7c3b-9d0e-0d1f2a3b4c5d",
        "a1:AZqxYx8xTzKx0000000000:approve",
        "The basic configuration holds 5 tokens.",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert scrubbed(text) == text


def test_a_long_text_is_cut_and_no_secret_with_it() -> None:
    for position in (7990, 8000, 10_980, 10_999):
        text = "x" * (position - 1) + " " + TOKEN + " " + "y" * 5000
        clean = scrubbed(text)
        assert "s3cr3t" not in clean
        assert 7900 < len(clean) < 8100
        assert clean.endswith(f"({len(text)} characters)")


def test_values_of_any_type_become_plain_and_clean() -> None:
    class Odd:
        def __repr__(self) -> str:
            return f"<Odd {TOKEN}>"

    value = {"a": [Secret("s3cr3t"), {TOKEN: (1, 2.5, None, True)}], "b": {Odd()}, "c": b"Bearer s3cr3t-s3cr3t"}
    clean = redacted(value)
    assert clean == {
        "a": [MASK, {MASK: [1, 2.5, None, True]}],
        "b": [f"<Odd {MASK}>"],
        "c": f"b'Bearer {MASK}'",
    }


def test_our_line_is_json_with_time_level_and_daemon(stream: io.StringIO) -> None:
    logger("shared.gate.admit").warning("parked", origin="health", secret=Secret("s3cr3t"), url=f"/bot{TOKEN}/x")
    (line,) = lines(stream)
    assert str(line.pop("at")).endswith("Z")
    assert line == {
        "event": "parked",
        "level": "warning",
        "logger": "shared.gate.admit",
        "daemon": "greeter",
        "origin": "health",
        "secret": MASK,
        "url": f"/bot{MASK}/x",
    }


def test_a_librarys_line_goes_the_same_way(stream: io.StringIO) -> None:
    logging.getLogger("some.library").error("POST %s said %s", f"https://h/bot{TOKEN}/x", "plain s3cr3t words")
    logging.getLogger("httpx").info("HTTP Request: GET /")
    (line,) = lines(stream)
    assert line["event"] == f"POST https://h/bot{MASK}/x said {MASK}"
    assert line["logger"] == "some.library"
    assert line["daemon"] == "greeter"


def test_an_exceptions_text_is_clean(stream: io.StringIO) -> None:
    try:
        int(f"https://h/bot{TOKEN}/x")
    except ValueError:
        logger("x").exception("failed")
        logging.getLogger("y").exception("failed too")
    assert "s3cr3t" not in stream.getvalue()
    assert ["ValueError" in str(line["exception"]) for line in lines(stream)] == [True, True]


def test_of_an_exception_the_place_and_the_kind_are_told_and_no_words_but_our_own(stream: io.StringIO) -> None:
    words = "dear " + "Anna"
    try:
        try:
            try:
                raise KeyError(words)  # noqa: TRY301  # three in a row
            except KeyError as lost:
                raise InvalidInput("The field is wrong.") from lost
        except InvalidInput:
            raise ValueError(words)  # noqa: B904  # the context is told as well
    except ValueError:
        logger("x").exception("a loop broke")
        logging.getLogger("y").exception("and a library's")
    assert words not in stream.getvalue()
    for line in lines(stream):
        told = str(line["exception"])
        assert [told.count(kind) for kind in ("Traceback", "KeyError\n", "InvalidInput: The field is wrong.")] == [
            3,
            1,
            1,
        ]
        assert told.endswith("ValueError")
        assert "test_telemetry.py" in told


def test_of_a_group_all_that_is_in_it_is_told(stream: io.StringIO) -> None:
    words = "dear " + "Anna"
    logger("x").error("a loop broke", exc_info=ExceptionGroup(words, [KeyError(words), InvalidInput("It is wrong.")]))
    told = str(lines(stream)[0]["exception"])
    assert [kind in told for kind in ("ExceptionGroup", "KeyError", "InvalidInput: It is wrong.", words)] == [
        True,
        True,
        True,
        False,
    ]


def test_what_asyncio_tells_of_a_task_ends_before_its_words(stream: io.StringIO) -> None:
    words = "dear " + "Anna"
    said = f"Task exception was never retrieved\nfuture: <Task finished exception=ValueError('{words}')>"
    logging.getLogger("asyncio").error(said, exc_info=ValueError(words))
    (line,) = lines(stream)
    assert line["event"] == "Task exception was never retrieved"
    assert words not in stream.getvalue()


@pytest.mark.parametrize(
    "secret",
    [
        "smtp://someone:s3cr3t%2Fp%40ss%22%C3%A9@mail.test:25",
        "7700001:s3cr3t-AAAAAAAAAA",
        's3cr3t "console" p@ss',
    ],
)
def test_a_known_secret_is_masked_in_every_spelling(stream: io.StringIO, secret: str) -> None:
    password = 's3cr3t/p@ss"é'
    bare = {"smtp": password, "7700": "s3cr3t-AAAAAAAAAA", "s3cr": secret}[secret[:4]]
    into = io.StringIO()
    configure("greeter", secrets=[Secret(secret)], stream=into)
    login = b64encode(f"\0someone\0{bare}".encode()).decode() if secret.startswith("smtp") else ""
    spelled = (bare, quote(bare, safe=""), json.dumps(bare)[1:-1], b64encode(bare.encode()).decode(), login)
    for text in spelled:
        logger("x").info(f"the server said <{text}>")
    for line in map(json.loads, into.getvalue().splitlines()):
        assert line["event"] in {f"the server said <{MASK}>", "the server said <>"}


def test_a_bound_daemon_is_the_one_named(stream: io.StringIO) -> None:
    structlog.contextvars.bind_contextvars(daemon="messenger")
    logger("x").info("one")
    structlog.contextvars.clear_contextvars()
    logger("x").info("two")
    assert [line["daemon"] for line in lines(stream)] == ["messenger", "greeter"]


def test_a_short_secret_does_not_mask_every_letter(stream: io.StringIO) -> None:
    logger("x").info("exact")
    assert lines(stream)[0]["event"] == "exact"


def test_a_person_gets_words_without_secrets(stream: io.StringIO) -> None:
    into = io.StringIO()
    configure("greeter", pretty=True, stream=into)
    logger("x").info("hello", url=f"/bot{TOKEN}/x")
    assert "hello" in into.getvalue()
    assert "s3cr3t" not in into.getvalue()
    assert stream.getvalue() == ""


def test_whoever_reads_no_lines_keeps_nobody_waiting_and_has_those_that_fit() -> None:
    read, write = os.pipe()
    handler = Unhurried(write, 100)

    def say() -> None:
        for n in range(10_000):
            handler.emit(logging.makeLogRecord({"msg": f"{n} {'x' * 100}"}))

    saying = threading.Thread(target=say, daemon=True)
    saying.start()
    saying.join(5)
    assert not saying.is_alive()
    with os.fdopen(read, "rb") as lines:
        assert [int(lines.readline().split()[0]) for _ in range(100)] == list(range(100))


def test_what_ends_while_a_line_is_handed_over_is_logged_too() -> None:
    """Finalizers log, and run between any two steps: here they come at each call that handing over makes."""
    read, write = os.pipe()
    handler = Unhurried(write)
    line, ended = (logging.makeLogRecord({"msg": said}) for said in ("line", "ended"))

    def say() -> None:
        sys.setprofile(lambda *_: handler.emit(ended))
        handler.emit(line)
        sys.setprofile(None)

    saying = threading.Thread(target=say, daemon=True)
    saying.start()
    saying.join(5)
    assert not saying.is_alive()
    with os.fdopen(read, "rb") as lines:
        assert lines.readline() == b"ended\n"


def test_the_page_of_metrics_is_made_once_a_second() -> None:
    counter = metrics.notifications_total.labels(origin="recent", outcome="sent")
    page, line = metrics.Recent(), 'butlers_notifications_total{origin="recent",outcome="sent"}'
    seen = []
    for now in (10.0, 10.9, 11.0):
        counter.inc()
        seen += [one for one in page.text(now).decode().splitlines() if one.startswith(line)]
    assert seen == [f"{line} {n}" for n in ("1.0", "1.0", "3.0")]


def test_the_metrics_are_counted_and_shown() -> None:
    metrics.notifications_total.labels(origin="test_origin", outcome="sent").inc()
    metrics.deliveries_total.labels(channel="email", state="test_state", reason="none").inc(2)
    metrics.attempts_total.labels(channel="telegram", outcome="test_outcome").inc()
    metrics.hop_seconds.labels(target="test_target", tool="notify").observe(0.003)
    metrics.oldest_open_delivery_seconds.set(7)
    text = metrics.metrics_text().decode()
    assert 'butlers_notifications_total{origin="test_origin",outcome="sent"} 1.0' in text
    assert 'butlers_deliveries_total{channel="email",reason="none",state="test_state"} 2.0' in text
    assert 'butlers_attempts_total{channel="telegram",outcome="test_outcome"} 1.0' in text
    assert 'butlers_hop_seconds_bucket{le="0.005",target="test_target",tool="notify"} 1.0' in text
    assert "butlers_oldest_open_delivery_seconds 7.0" in text
    assert "process_resident_memory_bytes" in text
