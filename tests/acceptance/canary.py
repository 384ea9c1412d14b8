"""A fleet with secrets and words that are known again wherever they turn up, and all the places to look at."""

import base64
import hashlib
import json
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus, unquote, urlsplit

import asyncpg

from shared.db.pool import prepare_connection
from tests.rig import fresh
from tests.rig.bench import Bench, House
from tests.rig.fleet import Fleet, Mode
from tests.rig.rows import every_row

CHAT: Final = 7_123_456_789
"""The owner's, who is reached by live channels here."""

TOKEN: Final = "7700000001:CANARY-bot-AAEf_0123456789abcdefghijk"  # a canary
PASSWORDS: Final = {
    "smtp": 'Canary smtp/p@ss"é',
    "imap": "Canary imap+p@ss'&",
    "console": 'Canary console p@ss\\"ü',
    "wrong dsn": "Canary-wrong-dsn",
    "wrong sign-in": "Canary wrong sign-in",
    "wrong bearer": "eyJDanary.Canary-wrong-bearer.Canary-x",
}
WORDS: Final = {
    name: f"Canary{name}W0rds"
    for name in ("message", "subject", "contact", "edit", "reason", "inbound", "argument", "context", "crash", "path")
} | {"emoji": "🤡"}
# What anybody with a login may read of the server, and what its owner may.
OF_THE_SERVER: Final = (
    "SELECT string_agg(prosrc, E'\\n') FROM pg_proc",
    "SELECT string_agg(application_name || ' ' || query, E'\\n') FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
    "SELECT string_agg(s::text, E'\\n') FROM pg_db_role_setting s",
    "SELECT string_agg(s::text, E'\\n') FROM pg_settings s WHERE name NOT LIKE '%password%'",
    "SELECT string_agg(d::text, E'\\n') FROM pg_description d",
)


def spelled(text: str) -> set[str]:
    """The text in every spelling in which it may lie somewhere."""
    raw = text.encode()
    plain = {text, quote(text), quote(text, safe=""), quote_plus(text), json.dumps(text)[1:-1], repr(text)[1:-1]}
    plain |= {json.dumps(text, ensure_ascii=False)[1:-1], raw.hex(), text.replace("&", "&amp;").replace('"', "&#34;")}
    for shift in range(3):
        # In Base64 a text looks otherwise depending on where it stands; what touches its neighbours is left out.
        coded = base64.b64encode(b"\0" * shift + raw).decode()
        plain.add(coded[(shift * 8 + 5) // 6 : len(coded.rstrip("=")) - 1])
    return {one for one in plain if len(one) >= len(text) or len(one) > 8}


def hashed(text: str) -> set[str]:
    """What a password that was hashed carelessly looks like."""
    kinds = (hashlib.md5, hashlib.sha1, hashlib.sha256, hashlib.sha512)
    return {kind(text.encode()).hexdigest() for kind in kinds}


@dataclass(slots=True)
class Canary:
    """The fleet, its secrets by name, and everything it said, by place."""

    fleet: Fleet
    secrets: dict[str, str]
    said: dict[str, str] = field(default_factory=dict)

    def hear(self, place: str, text: object) -> None:
        """Keep what was said there."""
        self.said[place] = f"{self.said.get(place, '')}\n{text}"

    async def run(self, *argv: str, **env: str) -> str:
        """What a command says, on both streams."""
        _, out, err = await self.fleet.house.butlers(*argv, **env)
        self.hear(f"butlers {argv[0]}", out + err)
        return out + err

    def found(self, sought: Mapping[str, str], places: Mapping[str, str]) -> list[str]:
        """Which of them lies where, in any spelling."""
        hits = []
        for name, text in sought.items():
            for one in spelled(text):
                hits += [f"{name} in {place}: {_around(said, one)}" for place, said in places.items() if one in said]
        return hits


def _around(said: str, one: str) -> str:
    at = said.index(one)
    return said[max(0, at - 120) : at + len(one) + 40].replace("\n", " / ")


async def settled_house(bench: Bench, **code: Path) -> House:
    """An installation on live channels, which the sandbox plays, with canaries for all it is told."""
    house = await bench.house(code=code.get("code"), BUTLERS_TELEGRAM_BASE_URL="http://127.0.0.1:{sandbox}")
    smtp, imap = (quote(PASSWORDS[name], safe="") for name in ("smtp", "imap"))
    env = {
        "BUTLERS_TELEGRAM_TOKEN": TOKEN,
        "BUTLERS_SMTP_URL": f"smtp://canary-user:{smtp}@127.0.0.1:{house.base + 4}",
        "BUTLERS_IMAP_URL": f"imap://canary-user:{imap}@127.0.0.1:{house.base + 18}",
        "BUTLERS_EMAIL_FROM": "butlers@example.org",
        "BUTLERS_CONSOLE_PASSWORD": PASSWORDS["console"],
        "BUTLERS_OWNER_TELEGRAM": str(CHAT),
        "BUTLERS_OWNER_EMAIL": "owner@example.org",
        "BUTLERS_RATE_LIMITS": "0",
        "BUTLERS_CARD_BURST": "100",
    }
    house = replace(house, env={**house.env, **env})
    code_, _, err = await house.butlers("migrate")
    assert code_ == 0, err
    return house


async def begun(house: House, mode: Mode) -> Canary:
    """The fleet at work, and what nobody may ever see of it."""
    # Where both channels are live, `up` brings no sandbox of its own.
    outside = [house.spawn(["run", "sandbox"], "sandbox-0")] if mode == "one" else []
    try:
        fleet = await Fleet.start(house, mode)
    except BaseException:
        for process in outside:
            process.send(signal.SIGKILL)
        raise
    fleet.started += outside
    secrets = dict(PASSWORDS) | {"bot token": TOKEN.partition(":")[2]}
    secrets["dsn"] = unquote(urlsplit(house.dsn).password or "")
    for name in ("greeter", "health"):
        secrets[f"client token of {name}"] = await fleet.token(name)
    for path in sorted((house.home / "keys").rglob("*")):
        if path.is_file() and path.name in {"key.pem", "password"}:
            text = path.read_text()
            body = text if path.name == "password" else "".join(text.splitlines()[1:-1])
            if body.strip():
                secrets[f"{path.parent.name}/{path.name}"] = body.strip()
        elif path.is_file() and path.name == "secret":
            secrets[f"{path.parent.name}/secret"] = base64.b64encode(path.read_bytes()).decode().rstrip("=")[:-1]
    return Canary(fleet, secrets)


def logs(canary: Canary) -> Iterator[tuple[str, str]]:
    """What each process said; the link that signs in, and that `up` is meant to print, aside."""
    for process in canary.fleet.started:
        out = re.sub(r"(sign-in\?code=)\S+", r"\1", process.out.read_text(errors="replace"))
        yield process.out.name, out
        yield process.err.name, process.err.read_text(errors="replace")


def titles(canary: Canary) -> str:
    """The command lines of all processes as anybody on the computer sees them."""
    told = []
    for process in canary.fleet.started:
        if process.alive:
            told.append(Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            told.append(Path(f"/proc/{process.pid}/comm").read_text())
    return "\n".join(told)


def limits(canary: Canary) -> list[str]:
    """How large a core dump of each process may be: soft, hard."""
    alive = [process.pid for process in canary.fleet.started if process.alive]
    told = [Path(f"/proc/{pid}/limits").read_text().splitlines() for pid in alive]
    return [line for lines in told for line in lines if "core file" in line]


async def pages(canary: Canary) -> dict[str, str]:
    """What every daemon answers to anybody."""
    told = {}
    for name in ("switchboard", "messenger", "console", "greeter", "health"):
        for url in canary.fleet.urls(name):
            for path in ("healthz", "readyz", "metrics", "mcp", "nowhere"):
                async with canary.fleet.http.get(f"{url}/{path}", allow_redirects=False) as answer:
                    told[f"{name} /{path}"] = f"{dict(answer.headers)} {await answer.text()}"
    return told


async def dump(canary: Canary) -> dict[str, str]:
    """Every row of every table, and what the server tells about itself."""
    connection = await asyncpg.connect(canary.fleet.house.dsn)
    await prepare_connection(connection)
    try:
        rows = await every_row(connection)
        about = {text[:60]: await connection.fetchval(text) for text in OF_THE_SERVER}
    finally:
        await connection.close()
    return {place: text for place, text in {**rows, **about}.items() if text}


def sandbox_files(canary: Canary) -> dict[str, str]:
    """What the sandbox keeps."""
    where = canary.fleet.house.home / "sandbox"
    return {str(p.name): p.read_bytes().decode(errors="replace") for p in where.rglob("*") if p.is_file()}


def new_address() -> str:
    """Somebody's who is not known."""
    return fresh.address()
