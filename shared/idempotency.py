"""How equal calls are recognised: by what was asked, by whom, in which lineage. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shared.addresses import folded
from shared.hashing import digest


@dataclass(frozen=True, slots=True)
class Asked:
    """What the caller asked, before anything was looked up."""

    origin: str
    intent: str
    channel: str
    # One of contact:<uuid>, recipient:<as given>, owner, thread:<chat:message or sender>.
    whom: str
    message: str
    subject: str | None = None
    emoji: str | None = None
    # The thread that is answered or reacted to; None for a send.
    answered: str | None = None


def request_sha(asked: Asked) -> str:
    """Return the hash that identifies the request, whichever way its address is spelled.

    An identifier that is added or changed between two calls does not change it.
    """
    return said_sha(replace(asked, whom=folded(asked.whom)))


def said_sha(asked: Asked) -> str:
    """Return the hash of the call as it was said, which is in its key: so it stays what older programs made of it."""
    return digest(
        "request.v1",
        asked.origin,
        asked.intent,
        asked.channel,
        asked.whom if asked.answered is None else f"{asked.whom}|{asked.answered}",
        asked.subject,
        asked.message,
        asked.emoji,
    )


def notification_key(origin: str, lineage: str, request: str) -> str:
    """Return the idempotency key: the same origin, lineage and request are the same notification."""
    return digest("key.v1", origin, lineage, request)


EXPLICIT = "key:"


def lineage_in_session(stated: str | None, occurrence: str | None) -> str | None:
    """Return the lineage of a session's call: that of what a schedule had due, unless the call states a key.

    So what is due each day says the same words each day, and once each day.
    """
    if occurrence is None or (stated or "").startswith(EXPLICIT):
        return stated
    return f"occurrence:{occurrence}"


def stated_lineage(context: Mapping[str, object] | None) -> str | None:
    """Return the lineage the caller stated: an idempotency_key before a request_id, else None."""
    for name, prefix in (("idempotency_key", EXPLICIT), ("request_id", "request:")):
        value = (context or {}).get(name)
        if isinstance(value, str) and value:
            return prefix + value
    return None
