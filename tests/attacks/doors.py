"""Verbs at the doors of the daemons: plain HTTP, MCP, the console's pages, and the command line that starts them."""

import asyncio
import json
import signal
import socket
import time
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from io import BytesIO
from typing import Final, cast
from urllib.parse import urlsplit

import aiohttp

from tests.attacks import forging
from tests.attacks.world import Arguments, Seen, World, seen
from tests.rig.waiting import LONGEST

Verb = Callable[[World, Arguments], Awaitable[Seen]]
PROTOCOL: Final = "2026-07-28"
META: Final = {
    "io.modelcontextprotocol/protocolVersion": PROTOCOL,
    "io.modelcontextprotocol/clientCapabilities": {},
}
LONGEST_START: Final = 60
LARGE: Final = 1 << 20
UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


async def http(world: World, given: Arguments) -> Seen:
    """One request: to, method, path, headers, and a body as text, `json` or `form`."""
    url = f"{world.url(str(given['to']))}{given.get('path', '/')}"
    headers = {key: str(value) for key, value in cast("Mapping[str, object]", given.get("headers", {})).items()}
    body: Mapping[str, object] = {}
    if "json" in given:
        body = {"json": given["json"]}
    elif "form" in given:
        body = {"data": {key: str(value) for key, value in cast("Mapping[str, object]", given["form"]).items()}}
    elif "body" in given:
        text = str(given["body"]).encode(errors="surrogateescape") * int(str(given.get("times", 1)))
        body = {"data": BytesIO(text) if len(text) > LARGE else text}
    return await _request(world, str(given.get("method", "GET")), url, headers, body)


async def _request(world: World, method: str, url: str, headers: Mapping[str, str], body: Mapping[str, object]) -> Seen:
    try:
        async with world.http.request(method, url, headers=headers, allow_redirects=False, **body) as answer:  # type: ignore[arg-type]  # data or json
            text = (await answer.read()).decode(errors="replace")
            named = {key.lower(): value for key, value in answer.headers.items()}
            return seen(answer.status, text, headers=named, cookies=answer.headers.getall("Set-Cookie", []))
    except aiohttp.ClientError as refused:
        return seen(0, type(refused).__name__)


async def raw(world: World, given: Arguments) -> Seen:
    """Bytes as no client would write them (`text`, Latin-1), and the answer up to the end of the connection.

    A `<long>` in them stands for so many (`long`) letters.
    """
    text = str(given["text"]).replace("<long>", "a" * int(str(given.get("long", 0))))
    parts = urlsplit(world.url(str(given["to"])))
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(text.encode("latin-1"))
        await writer.drain()
        async with asyncio.timeout(LONGEST):
            answered = (await reader.read(65536)).decode("latin-1")
    except ConnectionError:
        answered = ""
    finally:
        writer.close()
    status = answered.split(" ", 2)[1] if answered.startswith("HTTP/") else "0"
    return seen(int(status), answered)


async def rpc(world: World, given: Arguments) -> Seen:
    """One MCP request of any method, with the token that is given, or with none."""
    method = str(given.get("method", "tools/list"))
    params = {**cast("Mapping[str, object]", given.get("params", {})), "_meta": META}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": PROTOCOL,
        "mcp-method": method,
        **({"mcp-name": str(params["name"])} if "name" in params else {}),
        **({"authorization": f"Bearer {given['token']}"} if "token" in given else {}),
        **{key: str(value) for key, value in cast("Mapping[str, object]", given.get("headers", {})).items()},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    # Lone surrogates travel as JSON escapes, as a client could write them.
    sent = {"data": json.dumps(body).encode()}
    headers["content-type"] = "application/json"
    return await _request(world, "POST", f"{world.url(str(given['to']))}/mcp", headers, sent)


async def call(world: World, given: Arguments) -> Seen:
    """A tool of a daemon: to, tool, arguments, and a token, or `as` a daemon whose key was stolen."""
    token = given.get("token")
    if "as" in given:
        made = await forging.mint(world, {"key": given["as"], "to": given["to"]})
        token = made["token"]
    params = {"name": given["tool"], "arguments": given.get("arguments", {})}
    asked = {"to": given["to"], "method": "tools/call", "params": params, "headers": given.get("headers", {})}
    answered = await rpc(world, {**asked, **({"token": token} if token else {})})
    return _tool_answer(answered)


def _tool_answer(answered: Seen) -> Seen:
    """The object that the tool answered, with `refused` for whatever is none."""
    body = answered["answer"]
    result = body.get("result") if isinstance(body, Mapping) else None
    found = result.get("structuredContent") if isinstance(result, Mapping) else None
    refused = found is None or (isinstance(result, Mapping) and bool(result.get("isError")))
    return {**answered, "answer": found, "refused": refused}


async def notify(world: World, given: Arguments) -> Seen:
    """The tool `notify` of a butler (`by`, else health), as the model that thinks for it calls it."""
    by = str(given.get("by", "health"))
    arguments = {
        "channel": "telegram",
        "message": "${nonce}",
        **cast("Mapping[str, object]", given.get("arguments", {})),
    }
    if arguments["message"] == "${nonce}":
        arguments["message"] = world.known["nonce"]
    token = await world.fleet.token(by)
    answered = await call(world, {"to": by, "tool": "notify", "arguments": arguments, "token": token})
    shape = answered["answer"]
    return {**answered, "outcome": shape.get("status") if isinstance(shape, Mapping) else None}


async def notify_raw(world: World, given: Arguments) -> Seen:
    """`notify` with half of a character, which no TOML can hold."""
    halves = {"half high": "x\ud83d", "half low": "\ude00x"}
    return await notify(world, {"arguments": {str(given["field"]): halves[str(given["value"])]}})


async def notify_padded(world: World, given: Arguments) -> Seen:
    """`notify` with `value` so many `times` in `field`, and its end in words."""
    text = f"{str(given['value']) * int(str(given['times']))}The end of {world.known['nonce']}"
    arguments = cast("Mapping[str, object]", given.get("arguments", {}))
    return await notify(world, {"arguments": {**arguments, str(given["field"]): text}})


async def notify_deep(world: World, given: Arguments) -> Seen:
    """`notify` with a context of so many `levels` of objects or lists within each other, written as JSON text."""
    levels = int(str(given["levels"]))
    opening, closing = ('{"a":', "}") if given["kind"] == "objects" else ("[", "]")
    text = '{"x":' + opening * levels + "1" + closing * levels + "}"
    return await notify(world, {"arguments": {"recipient": world.known["friend"], "request_context": text}})


async def route(world: World, given: Arguments) -> Seen:
    """A route.v1 brought by a daemon (`as`) to `to`, with a notify.v1 of these fields inside."""
    envelope = cast("Mapping[str, object]", given.get("envelope", {}))
    delivery = {"intent": "send", "channel": "telegram", "message": world.known["nonce"]}
    delivery |= cast("dict[str, object]", envelope.get("delivery", {}))
    fields = {key: value for key, value in envelope.items() if key != "delivery"}
    request = {"schema_version": "notify.v1", "origin_butler": given["as"], "delivery": delivery, **fields}
    context = {
        "request_id": str(world.known["uuid"]),
        "source_channel": "mcp",
        "source_endpoint_identity": given["as"],
        "source_sender_identity": given["as"],
        **cast("Mapping[str, object]", given.get("context", {})),
    }
    whole = {
        "schema_version": "route.v1",
        "request_context": context,
        "target": {"butler": "messenger", "tool": "route.execute"},
        "input": {"context": {"notify_request": request}},
        **cast("Mapping[str, object]", given.get("route", {})),
    }
    tool = given.get("tool", "route" if given["to"] == "switchboard" else "route.execute")
    asked = {"to": given["to"], "tool": tool, "arguments": whole}
    asked |= {"token": given["token"]} if "token" in given else {"as": given["as"]}
    return await call(world, asked)


async def page(world: World, given: Arguments) -> Seen:
    """A request to the console: `session`, `origin` and `csrf` are the owner's own where nothing else is said.

    An empty text leaves them out.
    """
    url = world.url("console")
    session, origin = given.get("session", world.cookie[1]), given.get("origin", url)
    headers = {key: str(value) for key, value in cast("Mapping[str, object]", given.get("headers", {})).items()}
    if session:
        headers["Cookie"] = f"{world.cookie[0]}={session}"
    if origin:
        headers["Origin"] = str(origin)
    form = {key: str(value) for key, value in cast("Mapping[str, object]", given.get("form", {})).items()}
    csrf = str(given.get("csrf", world.csrf))
    method = str(given.get("method", "POST"))
    body: Mapping[str, object] = (
        {} if method in {"GET", "HEAD"} else {"data": {**form, **({"csrf": csrf} if csrf else {})}}
    )
    return await _request(world, method, f"{url}{given.get('path', '/')}", headers, body)


async def leads_home(world: World, given: Arguments) -> Seen:
    """Sign in with `code` and a wish where to be led: `home` says whether it is a page of the console's own."""
    form = {"code": given["code"], "next": given["next"]}
    answered = await page(world, {"path": "/sign-in", "session": "", "csrf": "", "form": form})
    named = cast("Mapping[str, str]", answered["headers"])
    led = named.get("location", "")
    elsewhere = led.startswith("//") or "\\" in led or "\r" in led or "\n" in led
    return {**answered, "home": led.startswith("/") and not elsewhere, "text": led}


async def guess(world: World, given: Arguments) -> Seen:
    """So many passwords, one after the other: the statuses of the answers."""
    statuses = []
    for number in range(int(str(given["times"]))):
        form = {"password": f"guess {number}"}
        answered = await page(world, {"path": "/sign-in", "session": "", "csrf": "", "form": form})
        statuses.append(answered["status"])
    return {"statuses": statuses, "text": ""}


async def repeat(world: World, given: Arguments) -> Seen:
    """The same call so many times: the different outcomes."""
    context = {} if given["lineage"] == "none" else {"request_context": {"request_id": world.known["nonce"]}}
    asked = {"arguments": {"recipient": given["recipient"], **context}}
    answers = await asyncio.gather(*(notify(world, asked) for _ in range(int(str(given["times"])))))
    return {"outcomes": sorted({str(one["outcome"]) for one in answers}), "text": ""}


async def flood(world: World, given: Arguments) -> Seen:
    """So many questions in other words to ever other people: the different outcomes; `action` is the last one."""
    outcomes = set()
    for number in range(int(str(given["times"]))):
        asked = {"recipient": f"{world.known['friend']}{number:02d}", "message": f"{world.known['nonce']} {number}"}
        answered = await notify(world, {"by": given["by"], "arguments": asked})
        outcomes.add(str(answered["outcome"]))
        world.known["action"] = cast("Mapping[str, object]", answered["answer"]).get("action_id")
    return {"outcomes": sorted(outcomes), "text": ""}


async def longest(world: World, given: Arguments) -> Seen:
    """A mail of the longest message and subject, with a long context, all of `piece` and escaped, at the gate."""
    piece = str(given["piece"])
    words = {"message": f"{world.known['nonce']} ".ljust(10_000, piece), "subject": "".ljust(500, piece)}
    context = {"request_id": world.known["nonce"], "x": "".ljust(9_500, piece)}
    arguments = {"channel": "email", "recipient": given["to"], **words, "request_context": context}
    return await notify(world, {"by": given["by"], "arguments": arguments})


async def bodies(world: World, given: Arguments) -> Seen:
    """So `many` calls at once with `size` bytes of `piece`s as context; `soon`: the console answers meanwhile."""
    url, token = f"{world.url(str(given['by']))}/mcp", await world.fleet.token(str(given["by"]))
    headers = {
        "authorization": f"Bearer {token}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": PROTOCOL,
        "mcp-method": "tools/call",
        "mcp-name": "notify",
    }
    piece = str(given["piece"])
    context = '{"a": {"b": {"c": {"d": [' + piece * (int(str(given["size"])) // len(piece)) + "1]}}}}"
    filled = f'{{"channel": "telegram", "recipient": "1", "message": "x", "request_context": {context}}}'
    params = f'{{"name": "notify", "_meta": {json.dumps(META)}, "arguments": {filled}}}'
    body = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'.encode()
    calls = asyncio.gather(
        *(_request(world, "POST", url, headers, {"data": body}) for _ in range(int(str(given["many"]))))
    )
    slowest = 0.0
    while not calls.done():
        since = time.monotonic()
        async with world.http.get(f"{world.url('console')}/healthz") as answer:
            await answer.read()
        slowest = max(slowest, time.monotonic() - since)
        await asyncio.sleep(0.02)
    found = sorted({int(str(one["status"])) for one in await calls})
    return {"soon": slowest < float(str(given["seconds"])), "found": found, "text": f"{slowest:.1f} s, {found}"}


async def free_port(world: World, given: Arguments) -> Seen:
    """`port`: one on which nobody listens at this moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        world.known["port"] = one.getsockname()[1]
    return {"text": ""}


async def start(world: World, given: Arguments) -> Seen:
    """`butlers ARGV` with this environment added: `code` is its exit code, -1 if it serves instead of ending."""
    env = {key: str(value) for key, value in cast("Mapping[str, object]", given.get("env", {})).items()}
    argv = [str(word) for word in cast("list[object]", given["argv"])]
    process = world.fleet.house.spawn(argv, f"attack-{world.known['nonce']}", **env)
    try:
        code = await process.wait(LONGEST_START)
    except TimeoutError:
        process.send(signal.SIGKILL)
        await process.wait()
        code = -1
    return {"code": code, "text": process.out.read_text() + process.err.read_text()}


async def printed(world: World, given: Arguments) -> Seen:
    """What `butlers ARGV` prints for its owner; `hidden` is what of it a terminal would obey, or not show."""
    argv = [str(word) for word in cast("list[object]", given["argv"]) if word]
    code, out, err = await world.fleet.house.butlers(*argv)
    text = out + err
    hidden = [f"U+{ord(one):04X}" for one in text if one != "\n" and unicodedata.category(one) in UNSEEN]
    return {"code": code, "hidden": hidden, "text": text}


VERBS: Final[Mapping[str, Verb]] = {
    "http": http,
    "raw": raw,
    "rpc": rpc,
    "call": call,
    "notify": notify,
    "notify_raw": notify_raw,
    "notify_padded": notify_padded,
    "notify_deep": notify_deep,
    "route": route,
    "page": page,
    "leads_home": leads_home,
    "guess": guess,
    "repeat": repeat,
    "flood": flood,
    "longest": longest,
    "bodies": bodies,
    "free_port": free_port,
    "start": start,
    "printed": printed,
}
