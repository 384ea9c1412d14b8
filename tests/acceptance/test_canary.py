"""No secret turns up anywhere, and no word of a message where only events and figures belong, whatever goes wrong.

What is told to nobody: every password, token and key of an installation on live channels. What is told to the owner and
to the butler alone: the words. Both are looked for in every spelling.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Final

import aiohttp
import pytest
import pytest_asyncio

from shared.rpc import Answer
from tests.acceptance.canary import (
    CHAT,
    PASSWORDS,
    WORDS,
    Canary,
    begun,
    dump,
    hashed,
    limits,
    logs,
    pages,
    sandbox_files,
    settled_house,
    spelled,
    titles,
)
from tests.rig import fresh
from tests.rig.bench import Bench
from tests.rig.code import Edit, copy_of_code, plant
from tests.rig.fleet import MODES, Mode

pytestmark = pytest.mark.asyncio(loop_scope="module")

TELEGRAM_FAULTS: Final = ("400", "403", "500", "502", "500_accepted", "drop_before_body", "accept_reset", "garbage")
EMAIL_FAULTS: Final = (
    ("connect", "drop"),
    ("ehlo", "5xx"),
    ("mail", "4xx"),
    ("rcpt", "5xx"),
    ("data", "drop"),
    ("text", "drop"),
    ("dot", "5xx"),
    ("dot", "accept_reset"),
)
CUT: Final = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()"
ROUTES: Final = "SELECT string_agg(r::text, E'\\n') FROM switchboard.routes r"
# The place is told, with its line of source, and so the words must not stand in it.
CRASH: Final = f"""
    words = bytes.fromhex("{WORDS["crash"].encode().hex()}").decode()
    raise ValueError(words) from RuntimeError(words, context)
"""


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[
        pytest.param("one", marks=pytest.mark.slow),
        pytest.param("one, all", marks=pytest.mark.whole),
        pytest.param("each, all", marks=pytest.mark.slow),
    ],
)
async def canary(
    request: pytest.FixtureRequest, bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Canary]:
    """A fleet that has been through a lot or through everything, in whose Messenger one loop breaks all the time."""
    shape, _, whole = request.param.partition(", ")
    mode: Mode = next(name for name in MODES if name == shape)
    code = copy_of_code(tmp_path_factory.mktemp("canary"))
    plant(code, Edit("purger.run", "    wait = pace.first\n", CRASH + "    wait = pace.first\n"))
    made = await begun(await settled_house(bench, code=code), mode)
    try:
        await exercise(made, whole=bool(whole))
        yield made
    finally:
        await made.fleet.abandon()


async def exercise(canary: Canary, *, whole: bool) -> None:
    """Success, wrong calls, wrong logins, wrong addresses, and the faults of providers and of the database."""
    for step in (ordinary, decided, bad_calls, bad_tokens, sign_ins, commands):
        await step(canary)
    await faults(canary, TELEGRAM_FAULTS if whole else ("garbage",), EMAIL_FAULTS if whole else (("rcpt", "5xx"),))
    for step in (too_many, cut_off, unauthorized) if whole else ():
        await step(canary)
    for name, text in {**(await pages(canary)), "titles": titles(canary)}.items():
        canary.hear(name, text)


async def notify(canary: Canary, **arguments: object) -> Answer:
    """What the butler is told, which is kept without the owner's own words in it."""
    answer = await canary.fleet.notify(**{"channel": "telegram", "message": fresh.words(WORDS["message"]), **arguments})
    canary.hear("answers", json.dumps(answer))
    return answer


async def ordinary(canary: Canary) -> None:
    answer = await notify(canary, request_context={"request_id": "1", "said": WORDS["context"]})
    assert answer["status"] == "ok", answer
    answer = await notify(canary, channel="email", subject=WORDS["subject"])
    assert answer["status"] == "ok", answer
    thread = {
        "request_id": "r1",
        "source_channel": "telegram",
        "source_endpoint_identity": "1",
        "source_sender_identity": str(CHAT),
        "source_thread_identity": f"{CHAT}:1",
    }
    await notify(canary, intent="react", emoji=WORDS["emoji"], request_context=thread)
    await canary.fleet.outside.say(CHAT, WORDS["inbound"])


async def decided(canary: Canary) -> None:
    contact = await canary.fleet.contact(WORDS["contact"], telegram=fresh.chat(), email=fresh.address())
    parked = [await notify(canary, contact_id=contact) for _ in range(4)]
    assert {answer["status"] for answer in parked} == {"pending_approval"}
    yes, no, other, card = (str(answer["action_id"]) for answer in parked)
    await canary.run("approvals", "approve", yes)
    await canary.run("approvals", "deny", no, "--reason", WORDS["reason"])
    await canary.run("approvals", "edit", other, "--message", WORDS["edit"])
    await canary.run("approvals", "show", card)
    for name in ("bad", "wrong", "a1:x:y:z", WORDS["argument"]):
        await canary.fleet.outside.press_data(1, name, CHAT)
    await notify(canary, recipient=f"{WORDS['argument']}@example.org", channel="email")


async def bad_calls(canary: Canary) -> None:
    client = await canary.fleet.client("health")
    word = WORDS["argument"]
    for tool, arguments in (
        ("notify", {"channel": word, "message": word}),
        ("notify", {"channel": "telegram", "message": word, "contact_id": word}),
        ("notify", {"channel": "telegram", "message": {"a": [word]}, "request_context": word}),
        ("notify", {"channel": "telegram", "message": f"{word}\0", "subject": f"{word}\r\n"}),
        ("notify", {"channel": "email", "message": word, "recipient": f"{word}@@"}),
        ("notify", {word: word}),
        (word, {word: word}),
        ("notification_status", {"notification_id": word}),
    ):
        try:
            canary.hear("errors", await client.call_tool(tool, arguments, raise_on_error=False))
        except Exception as refused:  # noqa: BLE001  # whatever is said is looked at
            canary.hear("errors", repr(refused))


async def bad_tokens(canary: Canary) -> None:
    good = await canary.fleet.token("greeter")
    for token in (PASSWORDS["wrong bearer"], good[:-6] + "AAAAAA", good, f"{good}\x01"):
        for name in ("health", "switchboard", "messenger"):
            url = f"{canary.fleet.url(name)}/mcp"
            body = {"jsonrpc": "2.0", "id": 1, "method": WORDS["argument"], "params": {"x": WORDS["argument"]}}
            await posted(canary, url, json=body, headers={"Authorization": f"Bearer {token}"})
            await posted(canary, f"{url}?token={PASSWORDS['wrong bearer']}", data=WORDS["argument"])


async def posted(canary: Canary, url: str, **request: object) -> None:
    """Keep status, headers and text of an answer, or why there is none."""
    try:
        async with canary.fleet.http.post(url, allow_redirects=False, **request) as answer:  # type: ignore[arg-type]
            canary.hear("answers over HTTP", f"{answer.status} {dict(answer.headers)} {await answer.text()}")
    except (aiohttp.ClientError, ValueError) as refused:
        canary.hear("answers over HTTP", type(refused).__name__)


async def sign_ins(canary: Canary) -> None:
    url = canary.fleet.url("console")
    same = {"Origin": url}
    for form in ({"password": PASSWORDS["wrong sign-in"]}, {"code": PASSWORDS["wrong sign-in"]}, {}):
        await posted(canary, f"{url}/sign-in", data=form, headers=same)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        form = {"password": PASSWORDS["console"]}
        async with http.post(f"{url}/sign-in", data=form, headers=same, allow_redirects=False) as answer:
            assert answer.status == 303, await answer.text()
            (cookie,) = answer.cookies.values()
        canary.secrets["session"] = cookie.value
        for path in ("", "approvals", "contacts", "deliveries", "butlers", "settings", WORDS["path"]):
            async with http.get(f"{url}/{path}") as answer:
                canary.hear("console's pages", f"{dict(answer.headers)} {await answer.text()}")
                canary.hear("console's headers", dict(answer.headers))
        async with http.post(f"{url}/{WORDS['path']}", data={"x": WORDS["argument"]}) as answer:
            canary.hear("console's pages", await answer.text())


async def commands(canary: Canary) -> None:
    (row,) = await canary.fleet.sql("SELECT id::text FROM shared.notifications ORDER BY created_at DESC LIMIT 1")
    for argv in (["doctor"], ["status"], ["config", "dump"], ["why", row[0]], ["deliveries", "list"], ["migrate"]):
        await canary.run(*argv)
    # A daemon comes by a login of its own, and has no need of that of the URL.
    refused = f"postgresql://postgres:{PASSWORDS['wrong dsn']}@{canary.fleet.house.dsn.rpartition('@')[2]}"
    nowhere = f"postgresql://u:{PASSWORDS['wrong dsn']}@127.0.0.1:1/x"
    for argv in (["status"], ["doctor"], ["migrate"]):
        await canary.run(*argv, DATABASE_URL=refused)
    await canary.run("doctor", DATABASE_URL=nowhere)
    await canary.run("run", "greeter", DATABASE_URL=f"{refused.rpartition('/')[0]}/nowhere")


async def faults(canary: Canary, telegram: Sequence[str], email: Sequence[tuple[str, str]]) -> None:
    outside = canary.fleet.outside
    calls = []
    for fault in telegram:
        words = fresh.words(f"{WORDS['message']} {fault}")
        await outside.fault("telegram", "sendMessage", fault, match=words, times=1)
        calls.append(notify(canary, message=words))
    for stage, fault in email:
        await outside.fault("email", stage, fault, times=1)
        calls.append(notify(canary, channel="email", subject=WORDS["subject"]))
    await asyncio.gather(*calls)
    await outside.clear_faults()


async def too_many(canary: Canary) -> None:
    await canary.fleet.outside.fault("telegram", "sendMessage", "429", match=WORDS["message"], times=1, value=1)
    await notify(canary)


async def cut_off(canary: Canary) -> None:
    name = canary.fleet.house.name
    for _ in range(3):
        calls = [asyncio.ensure_future(notify(canary)) for _ in range(4)]
        await canary.fleet.sql(CUT, name)
        canary.hear("errors", await asyncio.gather(*calls, return_exceptions=True))


async def unauthorized(canary: Canary) -> None:
    await canary.fleet.outside.fault("email", "auth", "5xx", times=2, value=535)
    await canary.fleet.outside.fault("telegram", "sendMessage", "401", times=1)
    await asyncio.gather(notify(canary), notify(canary, channel="email", subject=WORDS["subject"]))
    await canary.run("status")
    await canary.fleet.outside.clear_faults()


def told(hits: list[str]) -> str:
    return "\n".join(hits[:20])


async def test_no_log_holds_a_secret_or_a_word(canary: Canary, bench: Bench) -> None:
    said = {**dict(logs(canary)), "postgres.log": (bench.folder / "postgres/postgres/postgres.log").read_text()}
    assert sum(len(text) for text in said.values()) > 1000
    assert "a loop broke and is started again" in "".join(said.values())
    # The commands that were run say to the owner what the owner asked for.
    daemons = {place: text for place, text in said.items() if not place.startswith("cli-")}
    assert told(canary.found(canary.secrets, said)) == ""
    assert told(canary.found(WORDS, daemons)) == ""


async def test_nothing_that_is_said_to_anybody_holds_a_secret(canary: Canary) -> None:
    assert told(canary.found(canary.secrets, canary.said)) == ""
    public = {
        place: text for place, text in canary.said.items() if "/" in place or place in {"titles", "console's headers"}
    }
    assert len(public) > 10
    assert told(canary.found(WORDS, public)) == ""


async def test_the_database_holds_no_secret_in_any_form(canary: Canary) -> None:
    rows = await dump(canary)
    assert any(WORDS["message"] in text for text in rows.values()), "the words were never written"
    assert told(canary.found(canary.secrets, rows)) == ""
    assert [
        name for name, text in PASSWORDS.items() for one in hashed(text) if any(one in r for r in rows.values())
    ] == []


async def test_words_lie_only_where_they_are_wiped_some_day(canary: Canary) -> None:
    rows = await dump(canary)
    # The owner's own stay, and a reaction's emoji is its receipt.
    spoken = {name: text for name, text in WORDS.items() if name not in {"reason", "contact", "emoji"}}
    hold = {
        "shared.notices",
        "shared.notifications",
        "shared.pending_actions",
        "switchboard.inbox",
        "messenger.updates",
        "messenger.parts",
    }
    assert told(canary.found(spoken, {place: text for place, text in rows.items() if place not in hold})) == ""


async def test_the_sandbox_keeps_no_secret_of_ours(canary: Canary) -> None:
    assert told(canary.found(canary.secrets, sandbox_files(canary))) == ""


async def test_no_process_leaves_its_memory_behind(canary: Canary) -> None:
    said = limits(canary)
    assert len(said) > 1
    assert [line for line in said if line.split()[4:6] != ["0", "0"]] == []


async def test_what_is_looked_for_would_be_found() -> None:
    for text in (*PASSWORDS.values(), *WORDS.values()):
        for place in (text, json.dumps(text), repr(text)):
            assert any(one in place for one in spelled(text))
