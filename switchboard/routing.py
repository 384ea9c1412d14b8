"""Which butler a received message goes to, and why: a message and facts in, a choice out. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shared.addresses import folded

# Whose words these are is said by their kind: in a forwarded message the sender names nobody.
OWN_WORDS: Final = "message"
# What a machine sent by itself, such as a note of absence: it answers nothing.
AUTOMATIC: Final = "automatic"
DEFAULT: Final = "the default butler"
# Why what the classifier's session came to is no answer, by its status.
UNANSWERED: Final = {
    "done": "the classifier named none of the butlers",
    "limit": "the classifier is at its limit",
}
# A mail's subject stands above its words.
_NAMED: Final = re.compile(
    r"(?:Subject: (?=[/@])|Subject: .*\n\n)?[/@]([A-Za-z][A-Za-z0-9_]{0,30})(?:@\w{1,64})?(?=[,:]|[.!?;]*(?:\s|$))"
)


@dataclass(frozen=True, slots=True)
class Incoming:
    """What routing looks at of one received message; `from_owner` says that it is proved to be the owner's own.

    `contact` is who has that address; `is_proved` says that this is proved.
    """

    channel: str
    sender: str
    kind: str
    text: str
    from_owner: bool
    contact: str | None = None
    is_proved: bool = False


@dataclass(frozen=True, slots=True)
class RoutingRule:
    """A rule of the owner's: which messages go to which butler, or to nobody. What it leaves out may be anything.

    With `may_ask` its contact's words begin work of that butler.
    """

    id: str
    butler: str | None
    channel: str | None = None
    sender: str | None = None
    words: str | None = None
    contact: str | None = None
    may_ask: bool = False


@dataclass(frozen=True, slots=True)
class RoutingFacts:
    """Everything a choice leans on: who is there, what is answered, where the thread went, the rules in their order.

    `concerns` says that what is answered is the card of somebody else's words, which that butler has. `wrote` are those
    that wrote to the owner in that chat since the thread went anywhere, the last one first.
    """

    butlers: Sequence[str]
    default: str | None
    answered: str | None = None
    concerns: bool = False
    thread: str | None = None
    wrote: Sequence[str] = ()
    rules: Sequence[RoutingRule] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """The butler a message goes to, or nobody, and the reason, which is kept with the message.

    `unknown` is for whom the owner meant it, if nobody is called so.
    """

    butler: str | None
    because: str
    unknown: str | None = None


@dataclass(frozen=True, slots=True)
class Classifier:
    """The butler whose runtime is asked, and those that it may name: they are there, can read, and say what for."""

    butler: str
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Classification:
    """How the session in which it is asked stands: its status, its last words, and whether these are too late."""

    status: str
    words: str = ""
    is_late: bool = False


def choose(message: Incoming, facts: RoutingFacts) -> Choice | None:
    """Return where a message goes; None as long as no butler is known to whom it could go.

    In this order: what is answered, who is named, whom the contact may ask, who wrote to the owner there since the
    owner did, the thread, the owner's rules, the default butler; before the last the classifier is asked
    (`classified`). A rule that sends a sender's messages to nobody comes before all of them: who is blocked reaches no
    thread by any way.
    """
    rules = [rule for rule in facts.rules if _fits(rule, message)]
    blocked = next((rule for rule in rules if rule.butler is None), None)
    if blocked is not None and not message.from_owner:
        return Choice(None, f"blocked by rule {blocked.id}")
    named, unknown = named_in(message, facts.butlers)
    gone = _gone(message, facts)
    if gone is not None and facts.concerns:
        # INVARIANT: no other butler is told to answer somebody of whose words it knows nothing.
        return Choice(None, f"no butler is called {gone}", gone)
    unknown = gone if named is None and unknown is None else unknown
    candidates = [
        (facts.answered, "it answers a message of this butler"),
        (named, "the owner named it"),
        *((rule.butler, f"rule {rule.id}") for rule in rules if rule.may_ask and message.is_proved),
        _wrote_last(facts),
        (facts.thread, "its thread went there before"),
        *((rule.butler, f"rule {rule.id}") for rule in rules),
        (facts.default, DEFAULT),
    ]
    found = next(((name, why) for name, why in candidates if name in facts.butlers), None)
    if found is None:
        return None
    name, why = found
    return Choice(name, f"{why}; no butler is called {unknown}" if unknown else why, unknown)


def left_open(message: Incoming, chosen: Choice, rules: Sequence[RoutingRule]) -> bool:
    """Return whether nothing but the default says where a message goes that is work: the classifier may know better."""
    by_default = chosen.because.startswith(DEFAULT)
    return by_default and chosen.butler is not None and begins_work(message, chosen.butler, rules)


def classified(chosen: Choice, classifier: Classifier, asked: Classification | None) -> Choice | None:
    """Return where a message goes by the classifier's answer: to whom it named, else to the default, with the reason.

    None as long as it is to be asked, or its answer may come. INVARIANT: only an answer in time that is exactly one of
    the names counts, whatever else the classifier says.
    """
    if asked is None:
        if classifier.butler not in classifier.names:
            return replace(chosen, because=f"{chosen.because}; the classifier is not there")
        return None if len(classifier.names) > 1 else chosen
    if asked.is_late:
        return replace(chosen, because=f"{chosen.because}; the classifier did not answer in time")
    if asked.status in {"waiting", "running"}:
        return None
    if asked.status == "done" and asked.words in classifier.names:
        because = chosen.because.replace(DEFAULT, "the classifier named it", 1)
        return replace(chosen, butler=asked.words, because=because)
    why = UNANSWERED.get(asked.status, "the classifier's session failed")
    return replace(chosen, because=f"{chosen.because}; {why}")


def begins_work(message: Incoming, butler: str, rules: Sequence[RoutingRule]) -> bool:
    """Return whether a message is work for that butler: the owner's own words, or a contact's whom the owner lets ask.

    Not a file alone, not what somebody else wrote, and nothing that does not prove who wrote it.
    """
    if message.kind != OWN_WORDS or not message.text.strip():
        return False
    let = (rule for rule in rules if rule.may_ask and rule.butler == butler and _fits(rule, message))
    return message.from_owner or (message.is_proved and any(rule.contact == message.contact for rule in let))


def default_of(butlers: Sequence[tuple[str, bool]]) -> str | None:
    """Return the default among (name, whether it says so): the one that says so, else the first by name."""
    return min(butlers, key=lambda one: (not one[1], one[0]))[0] if butlers else None


def _wrote_last(facts: RoutingFacts) -> tuple[str | None, str]:
    """Return who wrote to the owner last, if anybody did since the owner wrote, and why; it names who wrote before."""
    wrote = [name for name in facts.wrote if name in facts.butlers]
    why = "it wrote to the owner last"
    return next(iter(wrote), None), f"{why}, after {wrote[1]}" if len(wrote) > 1 else why


def _gone(message: Incoming, facts: RoutingFacts) -> str | None:
    """Return the butler that the owner's own words answer, if others are there and it is not."""
    is_own = message.from_owner and message.kind == OWN_WORDS
    return facts.answered if is_own and facts.butlers and facts.answered not in facts.butlers else None


def named_in(message: Incoming, butlers: Sequence[str]) -> tuple[str | None, str | None]:
    """Return whom the owner's own words name at their beginning; and the name, if nobody is called so."""
    found = _NAMED.match(message.text) if message.from_owner and message.kind == OWN_WORDS else None
    if found is None:
        return None, None
    name = found[1].lower()
    return (name, None) if name in butlers else (None, name)


def _fits(rule: RoutingRule, message: Incoming) -> bool:
    return (
        rule.channel in (None, message.channel)
        and (rule.sender is None or folded(rule.sender) == folded(message.sender))
        and rule.contact in (None, message.contact)
        and (rule.words is None or rule.words.casefold() in message.text.casefold())
    )
