"""Seals: what one binds, and that whatever is done to lines or seals afterwards is found and named."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.audit import (
    BEGINNING,
    Chain,
    Cover,
    Flaw,
    Line,
    Lines,
    Seal,
    flaws_of_seal,
    hash_of,
    joined,
    line_of,
    numbers,
    signed_words,
    spans_of,
    text_of,
)
from shared.auth.keypairs import generate_key, public_key, sign, signer_of
from shared.telemetry.logs import scrubbed

PEM, PUBLIC = generate_key()
STRANGER: Final = generate_key()[0]
COLUMNS = st.lists(st.none() | st.text(max_size=6), min_size=8, max_size=8)
SEQS = st.sets(st.integers(1, 60), min_size=1, max_size=20)


def line(seq: int, reason: str = "because") -> Line:
    return line_of(seq, '"2026-11-21T18:00:00"', "parked", None, None, None, "greeter", reason, "{}")


def seal_over(lines: Iterable[Line], n: int = 1, prev: bytes = BEGINNING, pem: bytes = PEM) -> Seal:
    cover = Cover()
    for one in lines:
        cover.add(one)
    made = cover.sealed(n, prev, "2026-11-21T18:00:00.5", partial(sign, pem))
    assert made is not None
    return made


def chain_over(*lots: Sequence[Line]) -> list[Seal]:
    seals: list[Seal] = []
    for lot in lots:
        seals.append(seal_over(lot, len(seals) + 1, seals[-1].hash if seals else BEGINNING))
    return seals


def is_signed(seal: Seal) -> bool:
    return signer_of(signed_words(seal), seal.signature, [PUBLIC]) is not None


def flaws_of_lines(seal: Seal, there: Iterable[Line]) -> list[Flaw]:
    judged = Lines(seal)
    return [*(flaw for one in there for flaw in judged.meet(one)), *judged.end()]


def flaws_of_chain(seals: Sequence[Seal]) -> list[Flaw]:
    befores = [None, *seals[:-1]]
    return [
        flaw for seal, before in zip(seals, befores, strict=True) for flaw in flaws_of_seal(seal, before, is_signed)
    ]


@given(COLUMNS, COLUMNS)
def test_lines_that_differ_anywhere_have_other_digests(one: list[str | None], other: list[str | None]) -> None:
    assert (line_of(7, *one) == line_of(7, *other)) == (one == other)
    assert line_of(7, *one).digest != line_of(8, *one).digest


@given(SEQS)
def test_a_seal_covers_its_lines_in_the_fewest_spans_and_no_other(seqs: set[int]) -> None:
    seal = seal_over([line(seq) for seq in sorted(seqs)])
    assert list(numbers(seal)) == sorted(seqs)
    spans = spans_of(seal.seqs)
    assert list(spans) == joined(spans)
    assert text_of(spans) == seal.seqs
    assert flaws_of_chain([seal]) == []
    assert flaws_of_lines(seal, [line(seq) for seq in sorted(seqs)]) == []


@given(SEQS, st.data())
def test_each_line_that_is_gone_or_changed_is_named_and_no_other(seqs: set[int], data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.sampled_from(sorted(seqs))))
    changed = data.draw(st.sets(st.sampled_from(sorted(seqs)))) - gone
    seal = seal_over([line(seq) for seq in sorted(seqs)], n=3)
    there = [line(seq, "another" if seq in changed else "because") for seq in sorted(seqs - gone)]
    found = {(flaw.what, flaw.seal, flaw.seq) for flaw in flaws_of_lines(seal, there)}
    assert found == {("removed", 3, seq) for seq in gone} | {("edited", 3, seq) for seq in changed}


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=12))
def test_joined_spans_hold_the_same_numbers(pairs: list[tuple[int, int]]) -> None:
    spans = [(low, low + length) for low, length in pairs]
    found = joined(spans)
    assert {n for low, high in found for n in range(low, high)} == {n for low, high in spans for n in range(low, high)}
    assert all(one[1] < other[0] for one, other in pairwise(found))


@pytest.mark.parametrize("text", ["{}", "", "{(,5)}", "{[1,)}", "{(,)}", "[1,2)", "{[1,2)", "{[1,2)x[3,4)}", "{1}"])
def test_what_covers_nothing_or_is_without_end_has_no_spans(text: str) -> None:
    assert list(spans_of(text)) == []
    assert list(numbers(replace(seal_over([line(1)]), seqs=text))) == []


def test_a_seal_that_claims_more_lines_than_it_has_digests_is_not_walked() -> None:
    assert list(numbers(replace(seal_over([line(1)]), seqs="{[1,4611686018427387904)}"))) == []


SEALS: Final = chain_over(*([line(2 * n), line(2 * n + 1)] for n in range(1, 6)))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"seqs": "{[4,7)}"}, "seal_altered"),
        ({"digests": bytes(64)}, "seal_altered"),
        ({"at": "2026-11-21T18:00:00.6"}, "seal_altered"),
        ({"hash": bytes(32)}, "seal_altered"),
        ({"n": 2, "prev": bytes(32)}, "seal_altered"),
        ({"signature": bytes(64)}, "seal_unsigned"),
        ({"signature": b""}, "seal_unsigned"),
    ],
)
def test_an_altered_seal_is_named(change: dict[str, object], what: str) -> None:
    seals = [SEALS[0], replace(SEALS[1], **change), *SEALS[2:]]  # type: ignore[arg-type]  # fields of a seal
    assert (what, 2) in {(flaw.what, flaw.seal) for flaw in flaws_of_chain(seals)}


def test_whoever_can_recompute_every_hash_still_lacks_the_signature() -> None:
    lines = [[line(2 * n), line(2 * n + 1)] for n in range(1, 6)]
    lines[2][0] = line(6, "forged")
    forged: list[Seal] = []
    for lot in lines:
        forged.append(seal_over(lot, len(forged) + 1, forged[-1].hash if forged else BEGINNING, STRANGER))
    resigned = [*SEALS[:2], *forged[2:]]
    assert [hash_of(seal) == seal.hash for seal in resigned] == [True] * 5
    assert [(flaw.what, flaw.seal) for flaw in flaws_of_chain(resigned)] == [
        ("seal_unsigned", 3),
        ("seal_unsigned", 4),
        ("seal_unsigned", 5),
    ]


def test_a_signature_of_one_seal_does_not_fit_another_nor_a_bare_hash() -> None:
    assert not is_signed(replace(SEALS[0], signature=SEALS[1].signature))
    assert not is_signed(replace(SEALS[0], signature=sign(PEM, SEALS[0].hash)))
    assert public_key(PEM) == PUBLIC


@pytest.mark.parametrize(("gone", "missing"), [({0}, 1), ({1}, 2), ({1, 2, 3}, 2), ({3}, 4)])
def test_seals_that_are_gone_are_named(gone: set[int], missing: int) -> None:
    left = [seal for place, seal in enumerate(SEALS) if place not in gone]
    [flaw] = flaws_of_chain(left)
    assert (flaw.what, flaw.seal) == ("seal_missing", missing)
    assert flaw.text == (
        f"Seal {missing} is missing."
        if len(gone) == 1
        else f"Seals {missing} to {missing + len(gone) - 1} are missing."
    )


def test_seals_that_change_places_are_named() -> None:
    swapped = [SEALS[0], replace(SEALS[2], n=2), replace(SEALS[1], n=3), *SEALS[3:]]
    assert {(flaw.what, flaw.seal) for flaw in flaws_of_chain(swapped)} == {
        ("seal_altered", 2),
        ("seal_altered", 3),
        ("seal_moved", 2),
        ("seal_moved", 3),
        ("seal_moved", 4),
    }


def test_a_chain_that_begins_with_another_ones_end_is_seen() -> None:
    [flaw] = flaws_of_chain([seal_over([line(1)], prev=bytes(31) + b"\1")])
    assert (flaw.what, flaw.seal) == ("seal_moved", 1)


def test_the_hash_of_a_seal_is_not_taken_for_a_secret() -> None:
    """The log line is what the owner keeps elsewhere."""
    assert scrubbed(SEALS[0].hash.hex()) == SEALS[0].hash.hex()


@given(st.lists(SEQS, min_size=1, max_size=6))
def test_the_floor_is_the_reach_of_all_but_the_last_two_seals(lots: list[set[int]]) -> None:
    chain = Chain()
    for n, lot in enumerate(lots, 1):
        chain.add(replace(seal_over([line(seq) for seq in sorted(lot)]), n=n))
    assert chain.floor == max([max(lot) for lot in lots[:-2]], default=0)
    assert {n for low, high in chain.covered for n in range(low, high)} == set().union(*lots)
    assert list(chain.covered) == joined(chain.covered)
    assert chain.seals == len(lots)
