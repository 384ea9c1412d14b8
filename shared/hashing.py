"""Hashes over texts and content, the short references that stand for ids, and what ids begin with. Pure."""

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from uuid import UUID


def canonical_json(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, characters as they are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(kind: str, *fields: str | None) -> str:
    """Return the SHA-256 over a kind and its fields; absent and empty differ, and no two lists collide."""
    return sha256(canonical_json([kind, *fields]).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Content:
    """What would be sent to whom: exactly what an approval is given for."""

    realm: str
    origin: str
    intent: str
    channel: str
    address: str
    entry_id: str | None
    message: str
    subject: str | None = None
    emoji: str | None = None
    thread: str | None = None


def content_sha(content: Content) -> str:
    """Return the hash that identifies a message to an address in a realm."""
    return digest(
        "content.v1",
        content.realm,
        content.origin,
        content.intent,
        content.channel,
        content.address,
        content.entry_id,
        content.subject,
        content.message,
        content.emoji,
        content.thread,
    )


# Crockford's digits: none of them is taken for another when read aloud.
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def reference(delivery_id: str) -> str:
    """Return four characters by which the owner tells deliveries apart, such as 7K2Q.

    They are always the same for the same id.
    """
    number = int(digest("reference.v1", delivery_id)[:5], 16)
    return "".join(_DIGITS[number >> shift & 31] for shift in (15, 10, 5, 0))


def short(sha: str | None) -> str:
    """Return the part of a content's hash that the owner is shown, everywhere the same.

    It is `none` as long as there is no address.
    """
    return sha[:8] if sha else "none"


def id_in(text: str) -> UUID | None:
    """Return the id that a text is, None if it is none: a statement then finds no row, and an index any other."""
    try:
        return UUID(text)
    except ValueError:
        return None


_FIRST: Final = "00000000-0000-0000-0000-000000000000"
_LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def that_begin(begins: str) -> tuple[UUID, UUID] | None:
    """Return the first and the last id that begin so, by which an index finds all of them; None where none can."""
    try:
        first, last = (UUID(begins + filled[len(begins) :]) for filled in (_FIRST, _LAST))
    except ValueError:
        return None
    # Read more freely than ids are written: in capitals, or with hyphens elsewhere.
    return (first, last) if begins and str(first).startswith(begins) else None
