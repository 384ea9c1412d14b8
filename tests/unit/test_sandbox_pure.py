"""The pure parts of the sandbox: how a text is cut for showing, and how a mail is read."""

from hypothesis import given
from hypothesis import strategies as st

from messenger.sandbox.botapi.shapes import units
from messenger.sandbox.mail import text as mailtext
from messenger.sandbox.web.rich import blocks

ENTITY = st.fixed_dictionaries(
    {"type": st.sampled_from(["bold", "italic", "code"]), "offset": st.integers(0, 30), "length": st.integers(0, 30)}
)


def shown(text: str, entities: list[dict[str, object]]) -> str:
    return "".join(run.text for block in blocks(text, entities) for run in block.runs)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.lists(ENTITY, max_size=4))
def test_no_letter_is_lost_whatever_the_entities_say(text: str, entities: list[dict[str, object]]) -> None:
    inside = [e for e in entities if isinstance(e["offset"], int) and not splits_a_pair(text, e)]
    assert shown(text, inside) == text


def splits_a_pair(text: str, entity: dict[str, object]) -> bool:
    """Whether an entity begins or ends in the middle of a character outside the basic plane."""
    edges = {units(text[:at]) for at in range(len(text) + 1)}
    offset, length = entity["offset"], entity["length"]
    assert isinstance(offset, int)
    assert isinstance(length, int)
    return any(at < units(text) and at not in edges for at in (offset, offset + length))


def test_offsets_count_utf16_units() -> None:
    [_, bold, _] = blocks("🏃 run now", [{"type": "bold", "offset": 3, "length": 3}])[0].runs
    assert (bold.text, bold.kinds) == ("run", "bold")


def test_a_quote_stands_alone_without_the_line_ends_at_its_edges() -> None:
    before, quote, after = blocks("a\nquoted\nb", [{"type": "blockquote", "offset": 2, "length": 6}])
    assert [block.runs[0].text for block in (before, quote, after)] == ["a", "quoted", "b"]
    assert [block.kind for block in (before, quote, after)] == ["", "quote", ""]


def test_only_web_addresses_become_links() -> None:
    runs = blocks("see https://x.test/a?b=1. or javascript:alert(1)", [])[0].runs
    assert [run.href for run in runs] == ["", "https://x.test/a?b=1", ""]
    [run] = blocks("click", [{"type": "text_link", "offset": 0, "length": 5, "url": "javascript:alert(1)"}])[0].runs
    assert run.href == ""


def test_headers_and_text_are_decoded() -> None:
    raw = (
        b"Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?= to\r\n you\r\n"
        b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\nR3LDvMOfZQ==\r\n"
    )
    assert mailtext.header(raw, "subject") == "Grüße to you"
    assert mailtext.header(raw, "To") == ""
    assert mailtext.body(raw) == "Grüße"


def test_a_broken_mail_is_read_as_far_as_it_goes() -> None:
    raw = b"Subject: =?nonsense?b?AAA?=\r\nContent-Type: text/plain; charset=nonsense\r\n\r\n\xff hello\r\n"
    assert "nonsense" in mailtext.header(raw, "Subject")
    assert "hello" in mailtext.body(raw)


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read(raw: bytes) -> None:
    assert isinstance(mailtext.searchable(raw), str)
    assert isinstance(mailtext.searchable(b"Subject: " + raw), str)
