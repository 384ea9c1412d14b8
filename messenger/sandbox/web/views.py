"""What the pages show, read from the world. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from messenger.sandbox.faults import BREAKAGES, Fault
from messenger.sandbox.mail import text as mailtext
from messenger.sandbox.mail.writing import Draft
from messenger.sandbox.web.rich import Block, blocks
from messenger.sandbox.world import Mail, Message, Press, World, Written, as_list
from shared.channels.email import SPEC as EMAIL

HUES = 8
PREVIEW = 80
# Of what a page shows, the newest; of a mail, its beginning.
MOST_MESSAGES = 100
MOST_CHATS = 50
MOST_MAILS = 50
LONGEST_MAIL = 32 * 1024
CUT = "\n[The page shows no more of this mail.]"
MAIL_HEADERS = ("From", "To", "Subject", "Date", "Message-ID", "In-Reply-To", "References")


@dataclass(frozen=True, slots=True)
class Who:
    """A person, bot or group as an avatar and a name."""

    number: int
    name: str
    initials: str
    hue: int


@dataclass(frozen=True, slots=True)
class ChatLine:
    """One chat in the list."""

    who: Who
    preview: str
    iso: str
    time: str
    current: bool


@dataclass(frozen=True, slots=True)
class Button:
    """One inline button; `data` is None where it opens an address."""

    text: str
    data: str | None
    href: str


@dataclass(frozen=True, slots=True)
class Bubble:
    """One message in a thread."""

    message_id: int
    mine: bool
    by_bot: bool
    who: Who
    blocks: tuple[Block, ...]
    iso: str
    time: str
    edited: bool
    quote: str
    quote_name: str
    reactions: tuple[str, ...]
    rows: tuple[tuple[Button, ...], ...]
    answer: str


@dataclass(frozen=True, slots=True)
class Day:
    """The messages of one day."""

    name: str
    bubbles: tuple[Bubble, ...]


@dataclass(frozen=True, slots=True)
class Letter:
    """One mail; what people wrote has a negative number."""

    n: int
    who: Who
    to: str
    subject: str
    iso: str
    time: str
    headers: tuple[tuple[str, str], ...]
    text: str
    raw: str


@dataclass(frozen=True, slots=True)
class Broken:
    """One fault that is armed: what happens, and how often still."""

    words: str
    times: str


def who(world: World, number: int, *, by_bot: bool = False) -> Who:
    """Return how somebody is shown: by the name the world knows, else by number."""
    if by_bot:
        return Who(number, f"Bot {number}", "🤖", number % HUES)
    if number < 0:
        name = world.titles.get(number) or f"Group {abs(number)}"
    else:
        name = world.people.get(number) or f"Person {number}"
    return Who(number, name, _initials(name), number % HUES)


def chat_list(world: World, owner: int | None, current: int | None) -> list[ChatLine]:
    """Return the chats, the owner's first, then those with the newest messages."""
    chats = [one for n, one in enumerate(world.chats()) if n < MOST_CHATS or one.chat in (owner, current)]
    newest = {message.chat: message for message in chats}
    first = [chat for chat in (owner, current) if chat is not None and chat not in newest]
    order = [*first, *sorted(newest, key=lambda chat: (chat != owner, -newest[chat].message_id))]
    return [_chat_line(world, chat, newest.get(chat), current=chat == current) for chat in order]


def thread(world: World, chat: int) -> list[Day]:
    """Return the messages of one chat as the person who holds that phone sees them."""
    days: dict[str, list[Bubble]] = {}
    for message in world.thread(chat)[-MOST_MESSAGES:]:
        day = datetime.fromtimestamp(message.at, UTC).strftime("%-d %B %Y")
        days.setdefault(day, []).append(_bubble(world, message))
    return [Day(name, tuple(bubbles)) for name, bubbles in days.items()]


def letters(world: World) -> list[Letter]:
    """Return the mails, what the butlers sent and what people wrote, newest first."""
    mails: list[Mail | Written] = [*world.mails[-MOST_MAILS:], *world.written[-MOST_MAILS:]]
    return [_letter(mail) for mail in sorted(mails, key=lambda mail: mail.at, reverse=True)]


def draft(world: World, answer: str) -> Draft:
    """Return the mail to begin with: an answer to one that is shown, by whom it went to, or an empty one."""
    found = next((mail for mail in world.mails if str(mail.n) == answer), None)
    if found is None:
        return Draft("", EMAIL.sandbox_sender, "", "")
    bare = found.subject.removeprefix("Re: ")
    return Draft(found.to, found.sender, f"Re: {bare}", "", answers=found.message_id)


def broken(armed: Sequence[Fault]) -> list[Broken]:
    """Return what is armed, in words; what was armed over the API is named as it is there."""
    return [_broken(fault) for fault in armed]


def _broken(fault: Fault) -> Broken:
    known = next((one for one in BREAKAGES if (one.channel, one.fault) == (fault.channel, fault.fault)), None)
    provider = "Telegram" if fault.channel == "telegram" else "The mail server"
    words = f"{provider} {known.words if known else f'{fault.fault} at {fault.stage}'}"
    times = "until you repair it" if fault.times is None else "once" if fault.times == 1 else f"{fault.times} times"
    more = [*(["for others than you"] if fault.but else []), *([f"for “{fault.match}”"] if fault.match else [])]
    return Broken(words, " ".join([times, *more]))


def _chat_line(world: World, chat: int, newest: Message | None, *, current: bool) -> ChatLine:
    if newest is None:
        return ChatLine(who(world, chat), "No message yet", "", "", current)
    text = " ".join(newest.text.split())[:PREVIEW]
    preview = text if newest.by_bot or chat < 0 else f"You: {text}"
    return ChatLine(who(world, chat), preview, _iso(newest.at), _clock(newest.at), current)


def _bubble(world: World, message: Message) -> Bubble:
    answered = world.messages.get(message.reply_to) if message.reply_to is not None else None
    return Bubble(
        message_id=message.message_id,
        mine=not message.by_bot,
        by_bot=message.by_bot,
        who=who(world, message.sender, by_bot=message.by_bot),
        blocks=blocks(message.text, message.entities),
        iso=_iso(message.at),
        time=_clock(message.at),
        edited=message.edited_at is not None,
        quote=" ".join(answered.text.split())[:PREVIEW] if answered else "",
        quote_name=who(world, answered.sender, by_bot=answered.by_bot).name if answered else "",
        reactions=tuple(emoji for emojis in message.reactions.values() for emoji in emojis),
        rows=_rows(message.markup),
        answer=_answer(world.answers(message.message_id)),
    )


def _rows(markup: Mapping[str, object] | None) -> tuple[tuple[Button, ...], ...]:
    rows = markup.get("inline_keyboard") if markup is not None else None
    if not isinstance(rows, list):
        return ()
    return tuple(tuple(_button(button) for button in as_list(row)) for row in rows)


def _button(button: Mapping[str, object]) -> Button:
    url, data = str(button.get("url", "")), button.get("callback_data")
    return Button(str(button["text"]), None if data is None else str(data), url if url.startswith("http") else "")


def _answer(presses: Sequence[Press]) -> str:
    if not presses:
        return ""
    answer = presses[-1].answer
    return "Pressed; the bot has not answered yet" if answer is None else answer


def _letter(mail: Mail | Written) -> Letter:
    raw = mail.raw[:LONGEST_MAIL].encode(errors="surrogateescape")
    known = tuple((name, mailtext.header(raw, name)) for name in MAIL_HEADERS)
    sender = next((value for name, value in known if name == "From" and value), mail.sender)
    return Letter(
        n=mail.n if isinstance(mail, Mail) else -mail.uid,
        who=Who(0, sender, _initials(sender), sum(map(ord, sender)) % HUES),
        to=mail.to,
        subject=mailtext.header(raw, "Subject") or "(no subject)",
        iso=mail.at.isoformat(),
        time=mail.at.astimezone(UTC).strftime("%H:%M"),
        headers=(("Envelope", f"{mail.sender} → {mail.to}"), *((name, value) for name, value in known if value)),
        text=mailtext.body(raw),
        raw=raw.decode(errors="replace") + (CUT if len(mail.raw) > LONGEST_MAIL else ""),
    )


def _initials(name: str) -> str:
    words = [word for word in name.replace('"', " ").split() if word[0].isalnum()]
    return "".join(word[0] for word in words[:2]).upper() or "?"


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M")


def _iso(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
