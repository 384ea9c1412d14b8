"""Inputs that nobody sends by mistake alone: seeded, so that the same seed makes the same ones.

Each is something to send and a name to report it by. What is drawn here is what strangers, broken clients, a model
out of its mind, a compromised daemon and a provider that lies would send.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final
from uuid import UUID

from shared.rpc import PROTOCOL

DEEP: Final = "@@deep@@"
HUGE: Final = "@@huge@@"
OWNER: Final = "4242"
NOBODY: Final = "00000000-0000-4000-8000-000000000000"
VERSIONS: Final = (PROTOCOL, PROTOCOL, PROTOCOL, "2025-11-25", "2025-03-26", "1999-01-01", "\xff", "")
METHODS: Final = (
    "tools/list",
    "initialize",
    "ping",
    "server/discover",
    "prompts/get",
    "resources/read",
    "resources/templates/list",
    "completion/complete",
    "logging/setLevel",
    "notifications/initialized",
    "notifications/cancelled",
    "tasks/get",
    "sampling/createMessage",
    "rpc.discover",
    "",
)
TOOLS: Final = ("notify", "notification_status", "withdraw", "route", "heartbeat", "ingest", "route.execute", "no_such")
TEXTS: Final = (
    "",
    " ",
    "\0",
    "a\ud800b",
    "\udfff",
    "\r\nBcc: a@example.org",
    "\u202egnp.exe",
    "a\u200bb",
    "é" * 70,
    "x" * 11_000,
    "'; DROP TABLE shared.notifications; --",
    "{{7*7}}",
    "%s%n%x",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "5000000000000001",
    "someone@example.org",
    "@somebody",
    "-100123",
    NOBODY,
    "telegram",
    "email",
    "send",
    "reply",
    "react",
)
PATHS: Final = (
    "/",
    "/approvals",
    "/approvals/{}",
    "/contacts",
    "/contacts/{}",
    "/deliveries",
    "/deliveries/{}",
    "/rules",
    "/settings",
    "/butlers/{}",
    "/sign-in",
    "/sign-out",
    "/static/{}",
    "/events{}",
    "/mcp",
    "/{}",
)
CONTENT_TYPES: Final = (
    "application/json",
    "application/json; charset=utf-16",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "multipart/form-data; boundary=" + "b" * 200,
    "application/json, text/html",
    "\xff",
    "",
)
CHUNKS: Final = (
    b'5\r\n{"a":\r\n0\r\n\r\n',
    b"ffffffffffffffffffff\r\n",
    b"-1\r\nx\r\n",
    b"5;" + b"e" * 4000 + b"\r\nhello\r\n0\r\n\r\n",
    b"0\r\n" + b"x: y\r\n" * 200 + b"\r\n",
    b"zz\r\n",
    b"",
)


@dataclass(frozen=True, slots=True)
class Posted:
    """An HTTP request to a daemon by an ordinary client; `token` is whose token it carries."""

    daemon: str
    path: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    token: str = ""
    # Of a console's: whether the owner's session and its secret go along.
    session: bool = False


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes for a daemon's port; the token is put where {token} stands."""

    daemon: str
    sent: bytes


@dataclass(frozen=True, slots=True)
class Update:
    """What a provider that lies says happened."""

    body: object


Input = Posted | Raw | Update


def inputs(seed: int, many: int) -> Sequence[Input]:
    """So many inputs of all kinds; every one follows from the seed and its number alone."""
    return [_one(Random(f"{seed}:{n}")) for n in range(many)]


def _one(random: Random) -> Input:
    made = random.choices((call, hop, rpc, raw, page, update), weights=(30, 20, 15, 12, 13, 10))[0](random)
    assert isinstance(made, Posted | Raw | Update)
    return made


def value(random: Random, depth: int = 0) -> object:
    """Anything JSON can say, and some that it cannot."""
    kind = random.randrange(12 if depth < 3 else 9)
    plain = (None, True, False, 0, -1, 2**63, 10**400, 1e308, float("nan"), float("inf"), DEEP, 1.5)
    if kind < 4:
        return random.choice(TEXTS)
    if kind < 7:
        return random.choice(plain)
    if kind == 7:
        return str(UUID(int=random.getrandbits(128)))
    if kind == 8:
        return HUGE if random.random() < 0.02 else random.choice(TEXTS) * random.randrange(5)
    if kind == 9:
        return [value(random, depth + 1) for _ in range(random.randrange(4))]
    return {random.choice([*TEXTS, "a", "chat", "id"]): value(random, depth + 1) for _ in range(random.randrange(4))}


def mutated(random: Random, shape: object, chance: float = 0.15) -> object:
    """The same shape with here and there something else in its place, gone, or too much."""
    if random.random() < chance:
        return value(random)
    if isinstance(shape, dict):
        kept = {name: mutated(random, one, chance) for name, one in shape.items() if random.random() > chance / 3}
        if random.random() < chance:
            kept[random.choice([*TEXTS, "extra"])] = value(random)
        return kept
    if isinstance(shape, list):
        return [mutated(random, one, chance) for one in shape]
    return shape


def text_of(random: Random, shape: object) -> bytes:
    """The shape as JSON text, sometimes with a key twice, cut off, or with bytes that are no text."""
    deep = "[" * random.choice((50, 500, 50_000)) if random.random() < 0.5 else '{"a":' * random.choice((50, 5_000))
    text = json.dumps(shape, ensure_ascii=random.random() < 0.5).replace(f'"{DEEP}"', deep)
    text = text.replace(HUGE, "\N{PILE OF POO}" * random.choice((10_000, 250_000, 1_000_000)))
    body = text.encode("utf-8", "surrogatepass")
    luck = random.random()
    if luck < 0.04 and b"{" in body:
        at = body.index(b"{") + 1
        body = body[:at] + b'"message": 1, "message": 2, "jsonrpc": "1.0", ' + body[at:]
    elif luck < 0.07:
        body = body[: random.randrange(len(body) + 1)]
    elif luck < 0.10:
        at = random.randrange(len(body) + 1)
        body = body[:at] + bytes(random.randrange(256) for _ in range(random.randrange(1, 6))) + body[at:]
    return body


def notify(random: Random) -> dict[str, object]:
    """Arguments of notify: sometimes right, and then for the owner, or for somebody who must be asked about."""
    asked: dict[str, object] = {"channel": random.choice(("telegram", "email")), "message": f"m {random.random()}"}
    for name in random.sample(("contact_id", "recipient", "subject", "intent", "emoji", "request_context"), 2):
        asked[name] = random.choice(TEXTS)
    if random.random() < 0.3:
        asked["request_context"] = context(random)
    return asked


def context(random: Random) -> dict[str, object]:
    """A request_context."""
    return {
        "request_id": f"r {random.randrange(50)}",
        "source_channel": "telegram",
        "source_endpoint_identity": "switchboard",
        "source_sender_identity": random.choice((OWNER, "77", "health")),
        "source_thread_identity": f"{random.choice((OWNER, '77', '-5'))}:{random.randrange(9)}",
        "received_at": "2026-01-01T00:00:00Z",
    }


def arguments(random: Random, tool: str) -> object:
    """What a tool takes, and what it does not."""
    if tool == "notify":
        return mutated(random, notify(random))
    if tool in {"route", "route.execute"}:
        return envelope(random, random.choice(("health", "greeter", "messenger")))
    shape = {
        "notification_id": NOBODY,
        "wait_seconds": 0,
        "url": "http://127.0.0.1:1",
        "kind": "butler",
        "tools": [],
        "status": "ready",
    }
    return mutated(random, shape, 0.3)


def envelope(random: Random, origin: str) -> object:
    """A route.v1 around a notify.v1."""
    delivery = {**notify(random), "intent": random.choice(("send", "reply", "react"))}
    request: dict[str, object] = {
        "schema_version": "notify.v1",
        "origin_butler": origin,
        "delivery": {key: one for key, one in delivery.items() if key not in {"contact_id", "request_context"}},
        "request_context": context(random),
    }
    if random.random() < 0.3:
        request["notification_id"] = random.choice((NOBODY, *TEXTS))
    shape = {
        "schema_version": "route.v1",
        "request_context": context(random),
        "target": {"butler": "messenger", "tool": "route.execute"},
        "input": {"context": {"notify_request": request, "wait": False}},
        "trace_context": {},
    }
    return mutated(random, shape, 0.06)


def posted(random: Random, daemon: str, token: str, message: object, tool: str = "") -> Posted:
    """An MCP message over HTTP."""
    headers = {
        "accept": random.choice(("application/json, text/event-stream",) * 6 + ("*/*", "text/html")),
        "content-type": "application/json" if random.random() < 0.9 else random.choice(CONTENT_TYPES),
        "mcp-protocol-version": random.choice(VERSIONS) if random.random() < 0.4 else PROTOCOL,
        "mcp-method": "tools/call" if random.random() < 0.95 else random.choice(METHODS),
        "mcp-name": tool if random.random() < 0.95 else random.choice(TOOLS),
    }
    method = "POST" if random.random() < 0.97 else random.choice(("GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"))
    kept = {name: one for name, one in headers.items() if one and random.random() > 0.03}
    return Posted(daemon, "/mcp", method, kept, text_of(random, message), token)


def message_of(tool: str, given: object) -> dict[str, object]:
    """A tools/call."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": PROTOCOL,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": tool, "arguments": given, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def call(random: Random) -> Posted:
    """A tool, called by a client with the right token, another's, or none."""
    daemon = random.choice(("health", "health", "health", "greeter", "switchboard", "messenger"))
    token = daemon if random.random() < 0.85 else random.choice(("health", "", "garbage"))
    tool = random.choice(TOOLS[:3] if random.random() < 0.8 else TOOLS)
    return posted(random, daemon, token, message_of(tool, arguments(random, tool)), tool)


def hop(random: Random) -> Posted:
    """An envelope, brought by a daemon's own token."""
    caller, daemon, tool = random.choice(
        (
            ("health", "switchboard", "route"),
            ("health", "switchboard", "heartbeat"),
            ("messenger", "switchboard", "ingest"),
            ("switchboard", "messenger", "route.execute"),
            ("switchboard", "messenger", "route.execute"),
            ("health", "messenger", "route.execute"),
        )
    )
    shape = envelope(random, caller) if "route" in tool else arguments(random, tool)
    if tool == "ingest":
        shape = mutated(random, ingest(random))
    return posted(random, daemon, f"hop:{caller}", message_of(tool, shape), tool)


def ingest(random: Random) -> dict[str, object]:
    """An ingest.v1."""
    return {
        "schema_version": "ingest.v1",
        "source": {"channel": "telegram", "provider": "telegram", "endpoint_identity": "77"},
        "event": {"external_event_id": f"{random.random()}", "observed_at": "2026-01-01T00:00:00Z"},
        "sender": {"identity": "77"},
        "payload": {"text": random.choice(TEXTS)},
    }


def rpc(random: Random) -> Posted:
    """A message of the protocol itself, out of shape."""
    shape: object = message_of("notify", {"channel": "fax", "message": "x"})
    if random.random() < 0.5:
        shape = {**message_of("notify", {}), "method": random.choice(METHODS)}
    if random.random() < 0.1:
        shape = [shape] * random.randrange(40)
    return posted(random, random.choice(("health", "switchboard", "messenger")), "health", mutated(random, shape, 0.2))


def raw(random: Random) -> Raw:
    """Bytes that are no proper HTTP, or not all of it."""
    head = b"POST /mcp HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
    body = text_of(random, message_of("notify", {"channel": "fax", "message": "x"}))
    luck = random.randrange(6)
    if luck == 0:
        sent = head + b"transfer-encoding: chunked\r\n\r\n" + random.choice(CHUNKS)
    elif luck == 1:
        sent = head + b"content-length: %d\r\n\r\n" % (len(body) + random.randrange(1, 9**9)) + body
    elif luck == 2:
        sent = head + b"content-length: %s\r\n\r\n" % random.choice((b"-1", b"9" * 40, b"1, 2", b"x", b"")) + body
    elif luck == 3:
        sent = head + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\nabc"
    elif luck == 4:
        sent = head.replace(b"/mcp", random.choice((b"*", b"http://x/mcp", b"/%00%ff", b"//", b"/" + b"a" * 9000)))
        sent += b"\r\n"
    else:
        sent = bytes(random.randrange(256) for _ in range(random.randrange(200)))
    return Raw(random.choice(("health", "switchboard", "messenger", "console")), sent)


def page(random: Random) -> Posted:
    """A path of the console's, or a form for it."""
    from urllib.parse import quote, urlencode  # noqa: PLC0415  # nothing else here makes URLs

    part = quote(random.choice((NOBODY, *TEXTS)).encode("utf-8", "surrogatepass"), safe="/.?")[:3_000]
    path = random.choice(PATHS).replace("{}", part)
    if random.random() < 0.4:
        return Posted("console", path, random.choice(("GET", "GET", "HEAD", "PUT")), session=random.random() < 0.7)
    names = ("csrf", "word", "revision", "message", "reason", "code", "password", "next", "telegram", "type", "value")
    form = {
        name: random.choice((*TEXTS, "approve", "deny", "edit", "1", "9" * 30)).encode("utf-8", "surrogatepass")
        for name in random.sample(names, 4)
    }
    kind = "application/x-www-form-urlencoded" if random.random() < 0.8 else random.choice(CONTENT_TYPES)
    headers = {"content-type": kind, "origin": "{origin}" if random.random() < 0.9 else "http://evil.example"}
    body = urlencode(form).encode() if random.random() < 0.9 else text_of(random, value(random))
    return Posted("console", path, "POST", headers if kind else {}, body, session=random.random() < 0.7)


def update(random: Random) -> Update:
    """An update of Telegram's with something else in its fields."""
    owner = {"id": int(OWNER), "is_bot": False, "first_name": "O", "type": "private"}
    message = {"message_id": random.randrange(99), "from": owner, "chat": owner, "date": 1_790_000_000, "text": "hello"}
    data = random.choice(("a1:" + "A" * 22 + ":ok:" + "B" * 22, "a1:::", "u1:x", *TEXTS))
    press = {"id": f"{random.random()}", "from": owner, "message": message, "chat_instance": "1", "data": data}
    shape = {"callback_query": press} if random.random() < 0.6 else {"message": message}
    return Update(mutated(random, shape, 0.2))
