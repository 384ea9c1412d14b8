"""How equal calls are recognised: by what was asked, by whom, in which lineage. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.hashing import digest


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
    """Return the hash that identifies the request.

    An identifier that is added or changed between two calls does not change it.
    """
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


def notification_key(origin: str, lineage: str, request: str) -> str:
    """Return the idempotency key: the same origin, lineage and request are the same notification."""
    return digest("key.v1", origin, lineage, request)


EXPLICIT = "key:"


def stated_lineage(context: Mapping[str, object] | None) -> str | None:
    """Return the lineage the caller stated: an idempotency_key before a request_id, else None."""
    for name, prefix in (("idempotency_key", EXPLICIT), ("request_id", "request:")):
        value = (context or {}).get(name)
        if isinstance(value, str) and value:
            return prefix + value
    return None
