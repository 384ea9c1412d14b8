"""Verbs of people: what is said and pressed in Telegram, what other bots do, and what stands in the owner's mail."""

import asyncio
import re
from collections.abc import Mapping
from typing import Final

from tests.attacks.world import Arguments, Seen, World, seen
from tests.rig.bench import OWNER, OWNER_EMAIL
from tests.rig.pressing import pressable, unquoted
from tests.rig.waiting import LONGEST

BOT: Final = "1:sandbox"
LINK: Final = re.compile(r"https?://[^\s<>\"]+")
# When something was, at the end of what a press is told.
AT: Final = re.compile(r" \([A-Z][a-z]{2} \d+ [A-Z][a-z]{2} [^()]*\)\.$")
SHOWN_LATER: Final = ("editMessageText", "editMessageReplyMarkup")


async def press(world: World, given: Arguments) -> Seen:
    """A person (`as`, else the owner) presses `data` on `message` in `chat`; `spinner` is the text it is cleared with.

    `spinner` is None where nobody answers: a press at another bot (`elsewhere`), and one that is not the owner's.
    """
    who = int(str(given.get("as", OWNER)))
    numbers = {"as": who, "chat": int(str(given.get("chat", who))), "message_id": int(str(given["message"]))}
    asked = {**numbers, "data": given["data"]}
    async with world.http.post(f"{world.url('sandbox')}/api/press", json=asked) as answer:
        shape = await answer.json()
        assert answer.ok, shape
    if given.get("elsewhere"):
        return {"spinner": None, "text": ""}
    query = shape["callback_query_id"]
    async with asyncio.timeout(LONGEST):
        while (outcome := await world.fleet.value(OUTCOME, shape["update_id"])) is None:
            await asyncio.sleep(0.02)
    if outcome == "stranger":
        told = [e for e in await world.fleet.outside.journal() if e.payload.get("callback_query_id") == query]
        return {"spinner": str(told[0].payload.get("text", "")) if told else None, "text": ""}
    [entry] = await world.fleet.outside.until(lambda e: e.payload.get("callback_query_id") == query, 1, LONGEST)
    said = str(entry.payload.get("text", ""))
    return {"spinner": AT.sub("", said), "text": said}


async def say(world: World, given: Arguments) -> Seen:
    """A person writes to the bot; it counts as heard once the Messenger has handled it."""
    who = int(str(given["as"]))
    asked: dict[str, object] = {"as": who, "chat": int(str(given.get("chat", who))), "text": given["text"]}
    asked |= {"name": given["name"]} if "name" in given else {}
    async with world.http.post(f"{world.url('sandbox')}/api/say", json=asked) as answer:
        shape = await answer.json()
        assert answer.ok, shape
    world.known["said"] = shape["message_id"]
    async with asyncio.timeout(LONGEST):
        while not await world.fleet.value(HANDLED, shape["update_id"]):
            await asyncio.sleep(0.02)
    return {"text": ""}


UNHEARD: Final = "SELECT EXISTS (SELECT FROM messenger.updates WHERE handled_at IS NULL)"
STORED: Final = """
SELECT sender, count(*) AS messages, sum(bytes) AS bytes FROM (
    SELECT sender, octet_length(text) + octet_length(request_context::text) AS bytes FROM switchboard.inbox
    UNION ALL SELECT body #>> '{message,from,id}', octet_length(body::text) FROM messenger.updates) kept
WHERE sender = ANY ($1) GROUP BY sender
"""
OUTCOME: Final = "SELECT outcome FROM messenger.updates WHERE update_id = $1 AND handled_at IS NOT NULL"
HANDLED: Final = "SELECT EXISTS (SELECT FROM messenger.updates WHERE update_id = $1 AND handled_at IS NOT NULL)"


async def crowd(world: World, given: Arguments) -> Seen:
    """So many `people` write so many `times` each, `long` letters; of each once they are heard: what is stored of them.

    `messages` and `bytes` are the most of one of them, `senders` is how many have anything.
    """
    first, people, said = int(str(given["as"])), int(str(given["people"])), {}
    for number in range(people * int(str(given["times"]))):
        who = first + 1_000_000 * (number % people)
        asked = {"as": who, "chat": who, "text": f"{number}".ljust(int(str(given["long"])), "x")}
        async with world.http.post(f"{world.url('sandbox')}/api/say", json=asked) as answer:
            said = await answer.json()
            assert answer.ok, said
    async with asyncio.timeout(LONGEST):
        while not await world.fleet.value(HANDLED, said["update_id"]) or await world.fleet.value(UNHEARD):
            await asyncio.sleep(0.02)
    whose = [str(first + 1_000_000 * number) for number in range(people)]
    rows = await world.fleet.sql(STORED, whose)
    most = [max([row[name] for row in rows], default=0) for name in ("messages", "bytes")]
    bounded = most[0] <= int(str(given["most"])) and most[1] <= int(str(given["bytes"]))
    return {"few": len(rows) <= int(str(given["senders"])), "bounded": bounded, "text": f"{len(rows)} {most}"}


async def bot(world: World, given: Arguments) -> Seen:
    """A bot (ours, unless `token` says otherwise) does something that no product of ours asked it to do.

    So a card can be copied into another chat, as forwarding does. `message` is the number of what it sent.
    """
    url = f"{world.url('sandbox')}/bot{given.get('token', BOT)}/{given['method']}"
    async with world.http.post(url, json=given["payload"]) as answer:
        shape = await answer.json()
    result = shape.get("result")
    if isinstance(result, Mapping) and "message_id" in result:
        world.ours.add(str(result["message_id"]))
        world.known[str(given.get("into", "copy"))] = result["message_id"]
    return seen(answer.status, "", ok=shape.get("ok"))


async def card(world: World, given: Arguments) -> Seen:
    """The card of an action in the owner's chat, kept as card, card_text, approve and deny; `part` is its payload."""
    found = await world.fleet.outside.card(str(given["action"]), LONGEST)
    part = found.parts[-1].payload
    formatted = [one.payload["parse_mode"] for one in found.parts if "parse_mode" in one.payload]
    pressed = [link for one in found.parts for link in pressable(one.payload)]
    buttons = {verb.lower(): data for verb, data in found.buttons.items()}
    world.known |= {"card": found.message_id, "card_text": found.text, **buttons}
    return {"text": found.text, "part": part, "formatted": formatted, "pressable": pressed} | {
        "buttons": list(found.buttons),
        **buttons,
    }


async def rows(world: World, given: Arguments) -> Seen:
    """What of an action's card a phone may show as the house's own; `last` is the line right above its buttons."""
    found = await world.fleet.outside.card(str(given["action"]), LONGEST)
    ours = [unquoted(one.payload).rstrip() for one in found.parts]
    return {"text": "\n".join(ours), "last": ours[-1].rpartition("\n")[2]}


async def pieces(world: World, given: Arguments) -> Seen:
    """What a stranger who saw a button's data can take from it: the id as `short`, the tag as `into`."""
    _, short, _, tag = str(given["data"]).split(":")
    world.known |= {"short": short, str(given["into"]): tag}
    return {"text": ""}


async def shown(world: World, given: Arguments) -> Seen:
    """What a message of the owner's chat was changed into after `message` was sent, once it was; else what it was."""
    entries = await world.fleet.outside.until(
        lambda e: str(e.payload.get("message_id")) == str(given["message"]) and e.method in SHOWN_LATER, 1, LONGEST
    )
    return {"text": str(entries[-1].payload.get("text", ""))}


async def arrived(world: World, given: Arguments) -> Seen:
    """What reached `to` (else the owner's chat) with the words of `text` in it, as payload and as text."""
    to, piece = str(given.get("to", OWNER)), str(given.get("text", world.known["nonce"]))
    [entry, *more] = await world.fleet.outside.until(lambda e: e.to == to and piece in str(e.payload), 1, LONGEST)
    whole = str(entry.payload.get("raw", entry.payload.get("text", "")))
    said = {"payload": entry.payload, "more": len(more), "to": entry.to, "pressable": pressable(entry.payload)}
    name = str(given.get("by", "health"))
    said |= {"named": entry.whole.startswith((f"{name}:\n", f"{name} (1/")), "marks": entry.whole.count("\u25a3")}
    return {"text": whole, **said}


async def mails_to_owner(world: World, given: Arguments) -> Seen:
    """`only`: whether each mail with the attempt's words is to the owner alone and has no header that they made."""
    entries = [e for e in await world.fleet.outside.journal() if e.channel == "email"]
    mails = [e.mail for e in entries if str(world.known["nonce"]) in str(e.payload)]
    evil = [name for mail in mails for name, value in mail.items() if name != "Subject" and "evil" in str(value)]
    twice = [name for mail in mails for name in ("To", "From", "Subject") if len(mail.get_all(name, [])) != 1]
    others = [mail["To"] for mail in mails if str(mail["To"]) != OWNER_EMAIL or mail["Bcc"] or mail["Cc"]]
    html = any(part.get_content_type() != "text/plain" for mail in mails for part in mail.walk())
    return {"only": not (evil or twice or others), "html": html, "text": f"{evil} {twice} {others}"}


async def mailed(world: World, given: Arguments) -> Seen:
    """The mail to the owner that holds `text`; `link` is the first link of it that leads to the console."""
    piece = str(given.get("text", world.known["nonce"]))
    [entry, *_] = await world.fleet.outside.until(
        lambda e: e.to == OWNER_EMAIL and e.channel == "email" and piece in e.text, 1, LONGEST
    )
    links = [link for link in LINK.findall(entry.text) if link.startswith(world.url("console"))]
    world.known["link"] = links[0].removeprefix(world.url("console")) if links else ""
    return {"text": entry.text, "links": links}


async def counted(world: World, given: Arguments) -> Seen:
    """How many messages the owner's chat has got since `since`, a line of the journal, once every card has left.

    Those that name the butler `by`: what another one asked before may arrive late. `few` is from `least` to `most`;
    where there is a least, the digest of the rest is waited for.
    """
    since, by, outside = int(str(given["since"])), str(given["by"]), world.fleet.outside
    if int(str(given["least"])):
        await outside.until(lambda e: e.n > since and e.to == str(OWNER) and by in e.text and "more message" in e.text)
    async with asyncio.timeout(LONGEST):
        while await world.fleet.value(CARDS_ON_THE_WAY):
            await asyncio.sleep(0.05)
    told = [e for e in await outside.journal(since) if e.method == "sendMessage" and e.to == str(OWNER)]
    cards = [e for e in told if by in e.text]
    return {
        "messages": len(cards),
        "few": int(str(given["least"])) <= len(cards) <= int(str(given["most"])),
        "text": "\n".join(e.text for e in cards),
    }


CARDS_ON_THE_WAY: Final = """
SELECT EXISTS (SELECT FROM messenger.deliveries WHERE class = 'card' AND status IN ('queued', 'claimed', 'sending'))
"""


async def mark(world: World, given: Arguments) -> Seen:
    """Where the journal ends now, kept as `since`."""
    world.known["since"] = len(await world.fleet.outside.journal())
    return {"text": "", **given}


VERBS: Final = {
    "press": press,
    "say": say,
    "crowd": crowd,
    "bot": bot,
    "card": card,
    "rows": rows,
    "pieces": pieces,
    "shown": shown,
    "arrived": arrived,
    "mailed": mailed,
    "mails_to_owner": mails_to_owner,
    "counted": counted,
    "mark": mark,
}
