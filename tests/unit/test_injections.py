"""Words and mails that pretend, on every surface: in notices, on cards, on pages, in the log, and as mails read."""

import io
import json
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from butlers.console.templating import render_error
from butlers.notices import Waiting, block_of
from messenger.cards.strangers import stranger
from messenger.inbound.letters import envelope
from messenger.inbound.mail.letter import letter_of
from messenger.inbound.mailbox import Arrived
from shared.contracts import IngestEnvelope
from shared.display.conversation import File, Turn, framed, framed_file
from shared.display.owner import bubbles
from shared.display.visible import MARK, visible
from shared.telemetry.logs import logger
from tests.rig.logged import logged

CORPUS: Final = tomllib.loads((Path(__file__).parents[1] / "injections.toml").read_text(encoding="utf-8"))
# The longest by which alone a reader would be drowned is cut before it comes to any of these.
TEXTS: Final = [str(one["says"]) for one in CORPUS["text"]]
AT: Final = datetime(2026, 11, 23, 19, tzinfo=UTC)
OWNER: Final = "owner@example.org"
SERVER: Final = "mx.example.net"
MAILBOX: Final = "butlers@example.org"


def as_mails() -> Iterator[tuple[int, IngestEnvelope]]:
    """Each mail as it is brought to the Switchboard."""
    for number, one in enumerate(CORPUS["mail"]):
        raw = f"To: {MAILBOX}\n{one['raw']}".replace("\n", "\r\n").encode()
        yield number, envelope(MAILBOX, Arrived(letter_of(raw, SERVER, MAILBOX), AT))


def of_mail(mail: IngestEnvelope) -> Turn:
    """A mail as a prompt has it; its sender is the owner where that address is."""
    files = tuple(File(one.name or "", one.type or "", one.size) for one in mail.payload.attachments or ())
    return Turn(
        AT,
        "email",
        mail.payload.text,
        mail.event.kind,
        mail.sender.identity,
        mail.sender.display_name or "",
        is_owner=mail.sender.identity.lower() == OWNER,
        is_verified=mail.sender.verified,
        files=files,
        id="x",
    )


def words() -> Iterator[str]:
    """All texts, and what the mails say, in their subjects too."""
    yield from TEXTS
    for _, mail in as_mails():
        yield mail.payload.text
        yield mail.payload.subject or ""


def test_the_corpus_is_whole() -> None:
    assert (len(TEXTS), len(CORPUS["mail"])) == (100, 30)


def test_no_mail_is_taken_for_the_owners_or_ends_its_block() -> None:
    for number, mail in as_mails():
        turn = of_mail(mail)
        for block in (framed(turn), *(framed_file(turn, n, mail.payload.text) for n in range(1, len(turn.files) + 1))):
            read = ET.fromstring(block)  # noqa: S314  # of our own making
            assert read.attrib["from"] in {"stranger", "unverified"}, (number, block)
            assert block.count("<") == block.count(">") == 2, (number, block)


def test_no_word_ends_a_notice_or_passes_for_one() -> None:
    for said in words():
        one = Waiting("a", "mail", "came", "", said, "external", "normal", AT)
        other = Waiting("b", "mail", "came", "b", "plain", "external", "normal", AT)
        for waiting in ([one], [one, other]):
            block = block_of(waiting, "0123456789abcdef")
            assert block is not None
            head, *rows, tail = block.text.split("\n")
            assert head.count('nonce="0123456789abcdef"') == 1
            assert tail in {"</notification>", "</notifications>"}
            assert not any(set(row) & set('<>"\r\x00\x1b\u202e\u200b') for row in rows), said
            assert len(waiting) == 1 or [row[:10] for row in rows] == ["- [mail] “"] * 2, said


def test_no_word_passes_for_the_house_on_a_card() -> None:
    plain = dict.fromkeys(("contact_id", "contact", "realm"))
    about = {"channel": "email", "kind": "message", "verified": False, "files": 0, "from_owner": False, **plain}
    for said in words():
        row = {**about, "sender": "eve@evil.example", "display_name": said[:200], "conversation": "x", "text": said}
        more = {
            "id": "x",
            "routed_to": "health",
            "stranger": "waits",
            "is_played": False,
            "observed": said,
            "received_at": AT,
            "now": AT,
        }
        more["left_out"] = said
        title, sheet = stranger.words({**row, **more}, has_buttons=True)  # type: ignore[arg-type]  # as a row is read
        assert title == "Somebody unverified wrote to your butlers by e-mail."
        for bubble in bubbles(sheet):
            shown = bubble.text.replace(MARK, "")
            assert visible(shown) == shown, said


class Reader(HTMLParser):
    """The tags of a page, with the names of their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_no_word_is_anything_but_text_on_a_page() -> None:

    def read(said: str) -> Reader:
        return Reader(bytes(render_error(404, visible(said), "").body).decode())

    tags = read("plain").tags
    for said in words():
        page = read(said)
        assert page.tags == tags, said
        assert visible(said).strip() in page.text


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    with logged() as into:
        yield into


def test_no_word_makes_a_line_of_the_log(log: io.StringIO) -> None:
    said = list(words())
    for one in said:
        logger("tests").info("came", text=one)
    lines = log.getvalue().splitlines()
    assert len(lines) == len(said)
    for line in lines:
        assert json.loads(line)["event"] == "came"
        assert "\x1b" not in line
