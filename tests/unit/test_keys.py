"""Which calls are the same call: no two different ones share a key, and equal ones always do."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.hashing import Content, content_sha, digest, reference
from shared.idempotency import Asked, notification_key, request_sha, said_sha, stated_lineage

FIELDS = st.lists(st.none() | st.text(max_size=8), max_size=5)
ASKED = Asked("health", "send", "telegram", "owner", "hello", "subject", "x")
CONTENT = Content("sandbox", "health", "send", "telegram", "4242", "entry", "hello", "subject", "x", "4242:7")


@given(FIELDS, FIELDS)
def test_distinct_lists_of_fields_never_collide(one: list[str | None], other: list[str | None]) -> None:
    assert (digest("k", *one) == digest("k", *other)) == (one == other)


@given(st.text(max_size=6), st.text(max_size=6), st.text(max_size=6))
def test_moving_a_character_from_one_field_to_the_next_is_another_key(a: str, b: str, c: str) -> None:
    assert notification_key(a + b, c, "r") == notification_key(a, b + c, "r") or b
    if b:
        assert notification_key(a + b, c, "r") != notification_key(a, b + c, "r")


def test_absent_and_empty_differ_and_so_do_kinds() -> None:
    assert len({digest("k", None), digest("k", ""), digest("k"), digest("l"), digest("k", "", "")}) == 5


def test_half_a_character_has_a_digest() -> None:
    assert digest("k", "\ud800") != digest("k", "\udc00")


@pytest.mark.parametrize("field", ["origin", "intent", "channel", "whom", "message", "subject", "emoji", "answered"])
def test_every_field_of_what_was_asked_counts(field: str) -> None:
    assert request_sha(replace(ASKED, **{field: "another"})) != request_sha(ASKED)


def test_a_call_keeps_the_hash_it_had_and_its_request_forgets_the_spelling() -> None:
    """Keys of a year lie in rows: the same call has to find its own."""
    said = Asked("health", "reply", "email", "thread:Bob@example.org", "hello", answered="<A@x>")
    fields = ("health", "reply", "email", "thread:$@example.org|<A@x>", None, "hello", None)
    of = [digest("request.v1", *(field and field.replace("$", name) for field in fields)) for name in ("Bob", "bob")]
    assert [said_sha(said), request_sha(said)] == of


@pytest.mark.parametrize(
    "field",
    ["realm", "origin", "intent", "channel", "address", "entry_id", "message", "subject", "emoji", "thread"],
)
def test_every_field_of_the_content_counts(field: str) -> None:
    assert content_sha(replace(CONTENT, **{field: "another"})) != content_sha(CONTENT)


def test_swapped_fields_are_other_content() -> None:
    swapped = replace(CONTENT, message="subject", subject="hello")
    assert content_sha(swapped) != content_sha(CONTENT)


@pytest.mark.parametrize("place", range(3))
def test_origin_lineage_and_request_each_make_another_key(place: int) -> None:
    parts = ["health", "request:1", "sha"]
    other = [*parts]
    other[place] = "another"
    assert notification_key(*parts) == notification_key(*parts) != notification_key(*other)


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (None, None),
        ({}, None),
        ({"request_id": ""}, None),
        ({"request_id": 7}, None),
        ({"request_id": "r1"}, "request:r1"),
        ({"idempotency_key": "k1"}, "key:k1"),
        ({"request_id": "r1", "idempotency_key": "k1"}, "key:k1"),
        ({"request_id": "key:k1"}, "request:key:k1"),
    ],
)
def test_the_stated_key_comes_before_the_request_id(context: dict[str, object] | None, expected: str | None) -> None:
    assert stated_lineage(context) == expected


def test_a_reference_is_short_stable_and_tells_deliveries_apart() -> None:
    ids = [f"882f944d-051b-4fa8-a3cf-{n:012}" for n in range(300)]
    refs = [reference(one) for one in ids]
    assert refs == [reference(one) for one in ids]
    assert all(len(ref) == 4 and not set(ref) & set("ILOU") and ref == ref.upper() for ref in refs)
    assert len(set(refs)) > 295
