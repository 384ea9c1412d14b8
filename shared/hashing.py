"""Hashes over texts and content, and the short references that stand for ids. Pure."""

import json
from dataclasses import dataclass
from hashlib import sha256


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
