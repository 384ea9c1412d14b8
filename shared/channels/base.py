"""What a channel is, without sending: its addresses, threads, limits and words, and how a message becomes wires.

Cards, the console and the marker all show or hash the same bytes, so nothing here may depend on the clock, on chance or
on a connection. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class Message:
    """One notification, resolved, as the channel needs it."""

    notification_id: str
    channel: str
    intent: str
    address: str
    text: str
    subject: str | None = None
    emoji: str | None = None
    # Telegram: "<chat_id>:<message_id>"; e-mail: the Message-ID answered.
    thread: str | None = None
    # E-mail only: the From address, a stored row and never a caller's word.
    sender: str = ""
    created_at: datetime | None = None
    # A reply goes out also where the message it answers is gone.
    alone_if_gone: bool = False


@dataclass(frozen=True, slots=True)
class Wire:
    """One part, byte for byte as the provider will get it.

    `verb` is the Bot API method, or MAIL; `body` is canonical JSON, or the whole RFC 5322 message.
    """

    verb: str
    to: str
    body: bytes
    sender: str = ""

    @property
    def sha(self) -> str:
        """SHA-256 over everything that decides who gets which bytes."""
        head = f"{self.verb}\x00{self.sender}\x00{self.to}\x00".encode()
        return sha256(head + self.body).hexdigest()


def shas(wires: Sequence[Wire]) -> list[str]:
    """Return the hashes that an approval binds, in order of parts."""
    return [wire.sha for wire in wires]


@dataclass(frozen=True, slots=True)
class Limit:
    """So many at once, and one more per span: in any window at most `burst` and window / every."""

    burst: int
    every: timedelta


@dataclass(frozen=True, slots=True)
class Credential:
    """What a live channel is opened by; where it is not set, the channel is the sandbox.

    `setting` names the field of the settings, `realm` is what it opens, without any secret of it. `words` and `remedy`
    tell the owner of one that its provider does not accept.
    """

    setting: str
    realm: Callable[[str], str]
    words: str
    remedy: str
    # The field that holds the address which messages come from, where a channel has one.
    sender_setting: str = ""

    @property
    def variable(self) -> str:
        """The variable by which it is set."""
        return f"BUTLERS_{self.setting.upper()}"


@dataclass(frozen=True, slots=True)
class AddressForm:
    """What an address on a channel looks like.

    `claims` says whether a clean token is meant for this channel; `parse` returns its canonical value or raises
    InvalidInput. `is_private` says of a canonical value whether it can be the owner's own, which no group can; `group`
    says in words what it is if everybody in it reads what goes there, and nothing if not.
    """

    claims: Callable[[str], bool]
    parse: Callable[[str], str]
    is_private: Callable[[str], bool]
    # The forms with their article; what to give; what a private address is; and the words of the console.
    forms: tuple[str, ...]
    ask: str
    private: str
    missing: str
    field: str
    # What a stored value may begin with.
    prefix: str = ""
    # Whether nobody can ever be at such an address, so that it is good for the sandbox only.
    is_made_up: Callable[[str], bool] = lambda _address: False
    group: Callable[[str], str] = lambda _address: ""


@dataclass(frozen=True, slots=True)
class ThreadForm:
    """What a thread on a channel looks like.

    `spellings` returns how it may stand on file, or raises InvalidInput. `address` returns where a thread is; without
    it a thread does not say, its sender is answered, and a reply may name none.
    """

    spellings: Callable[[str], Sequence[str]]
    # How a question names it: `{thread}`, or `{place}` and `{number}` around its last colon.
    words: str
    form: str = ""
    address: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """Everything about a channel but the sending, which is `messenger/channels/<name>.py`."""

    name: str
    # The channel in a sentence, how a message goes by it, and whoever serves it.
    label: str
    via: str
    provider: str
    # What the Switchboard calls it.
    sources: frozenset[str]
    address: AddressForm
    thread: ThreadForm
    render: Callable[[Message], tuple[Wire, ...]]
    # What one message to an address spends from, by key; the other word is its butler, "" for the house's own.
    limits: Callable[[str, str], Mapping[str, Limit]]
    # The address invented for a new installation's owner, where nobody is, and the one that messages come from there.
    sandbox_owner: str
    sandbox_sender: str = ""
    credential: Credential | None = None
    # What its provider writes where it refuses a message, and what that means in the owner's words, with `{name}`.
    refusals: Mapping[str, str] = field(default_factory=dict)
    # The subject of a message; None where messages have none.
    subject: Callable[[Message], str] | None = None
    # The emoji a reaction may be; none where the channel has no reactions.
    reactions: Sequence[str] = ()
    # Whether the owner can press an answer below a message.
    has_buttons: bool = False

    def paused(self, reason: str) -> tuple[str, str]:
        """Return what the owner is told of a pause for that reason: what is wrong, and what helps."""
        if reason == "unauthorized" and self.credential is not None:
            return f"{self.provider} does not accept {self.credential.words}.", self.credential.remedy
        return f"{self.provider} cannot be reached.", "Butlers retries every few seconds by itself."
