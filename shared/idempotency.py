"""Which calls are the same call: hashes over what was asked and over what will be sent."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256


def canonical(value: object) -> str:
    """The one JSON text of a value: sorted keys, no spaces, characters as they are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(kind: str, *fields: str | None) -> str:
    """SHA-256 over a kind and its fields; absent and empty differ, and no two lists collide."""
    return sha256(canonical([kind, *fields]).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Asked:
    """What the caller asked, before anything was looked up."""

    origin: str
    intent: str
    channel: str
    # One of contact:<uuid>, recipient:<as given>, owner, thread:<chat:message or Message-ID>.
    whom: str
    message: str
    subject: str | None = None
    emoji: str | None = None


def request_sha(asked: Asked) -> str:
    """Identifies the request, so that an identifier added or changed in between changes nothing."""
    return digest(
        "request.v1",
        asked.origin,
        asked.intent,
        asked.channel,
        asked.whom,
        asked.subject,
        asked.message,
        asked.emoji,
    )


@dataclass(frozen=True, slots=True)
class Content:
    """What would go to whom: exactly what an approval is given for."""

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
    """Identifies a message to an address in a realm."""
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


def notification_key(origin: str, lineage: str, request: str) -> str:
    """The idempotency key: the same origin, lineage and request are the same notification."""
    return digest("key.v1", origin, lineage, request)


# Crockford's digits: none of them is taken for another when read aloud.
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def reference(delivery_id: str) -> str:
    """Four characters by which the owner tells deliveries apart, such as 7K2Q; always the same for the same id."""
    number = int(digest("reference.v1", delivery_id)[:5], 16)
    return "".join(_DIGITS[number >> shift & 31] for shift in (15, 10, 5, 0))


def short(sha: str | None) -> str:
    """As much of a content's hash as the owner is shown, everywhere the same; `none` as long as there is no address."""
    return sha[:8] if sha else "none"


EXPLICIT = "key:"


def stated_lineage(context: Mapping[str, object] | None) -> str | None:
    """The lineage the caller stated: an idempotency_key before a request_id, else None."""
    for name, prefix in (("idempotency_key", EXPLICIT), ("request_id", "request:")):
        value = (context or {}).get(name)
        if isinstance(value, str) and value:
            return prefix + value
    return None
