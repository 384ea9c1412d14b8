"""The pages over plain HTTP, as a browser without JavaScript has them, and who is let in at all."""

import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import pytest
import pytest_asyncio

from messenger.sandbox.faults import BREAKAGES
from messenger.sandbox.sandbox import Accepted
from tests.integration.sandbox_runner import OWNER, Running, running

HOSTILE = "<script>alert(1)</script>\"'&"


@pytest_asyncio.fixture
async def box(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as box:
        yield box


async def page(box: Running, path: str) -> str:
    async with box.http.get(box.url + path) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.text()


def visible(html: str) -> str:
    """The text of a page, without its tags."""
    return unescape(re.sub(r"<[^>]*>", "", html))


async def submit(box: Running, path: str, **fields: str) -> str:
    """Send a form as the pages do and follow where it leads."""
    async with box.http.post(box.url + path, data=fields, headers={"Origin": box.url}) as answer:
        assert answer.status == 200
        return await answer.text()


async def test_a_newcomer_sees_the_owners_empty_chat(box: Running) -> None:
    html = await page(box, "/")
    assert "No message yet" in html
    assert f'action="/chats/{OWNER}/say"' in html


async def test_a_chat_shows_texts_buttons_answers_reactions_and_edits(box: Running) -> None:
    keyboard = {
        "inline_keyboard": [[{"text": "Approve", "callback_data": "a1:x"}, {"text": "Why", "url": "https://x.test"}]]
    }
    entities = [{"type": "bold", "offset": 3, "length": 7}, {"type": "blockquote", "offset": 11, "length": 5}]
    await box.bot("sendMessage", chat_id=OWNER, text="🏃 greeter\nhello\nbye", entities=entities, reply_markup=keyboard)
    html = await page(box, f"/chats/{OWNER}")
    assert '<span class="bold">greeter</span>' in html
    assert "<blockquote>" in html
    assert 'name="data" value="a1:x"' in html
    assert 'href="https://x.test"' in html

    html = await submit(box, f"/chats/{OWNER}/press", message_id="1", data="a1:x")
    assert "the bot has not answered yet" in html
    [update] = box.sandbox.world.updates
    assert update.kind == "callback_query"
    await box.bot("answerCallbackQuery", callback_query_id=next(iter(box.sandbox.world.presses)), text="Noted.")
    await box.bot("setMessageReaction", chat_id=OWNER, message_id=1, reaction=[{"type": "emoji", "emoji": "👍"}])
    await box.bot("editMessageText", chat_id=OWNER, message_id=1, text="Approved")
    html = await page(box, f"/chats/{OWNER}")
    for words in ("Noted.", "👍", "edited", "Approved"):
        assert words in html
    assert "a1:x" not in html


async def test_a_person_types_and_every_bot_is_told(box: Running) -> None:
    html = await submit(box, f"/chats/{OWNER}/say", text="first line\r\nsecond")
    assert "first line\nsecond" in visible(html)
    status, shape = await box.bot("getUpdates")
    assert status == 200
    assert "first line\\nsecond" in str(shape)


async def test_a_stranger_and_a_group_have_pages_too(box: Running) -> None:
    async with box.http.get(f"{box.url}/chats?chat=666", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/chats/666")
    assert "Person 666" in await submit(box, "/chats/666/say", text="let me in")
    html = await submit(box, "/chats/-100123/say", text="hello all", **{"as": "666"})
    assert "hello all" in html
    assert box.sandbox.world.messages[2].sender == 666


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        (f"/chats/{OWNER}/say", {"text": "  "}, "A message has 1 to 4096 characters."),
        (f"/chats/{OWNER}/press", {"message_id": "9", "data": "x"}, "There is no message 9"),
        ("/chats/-5/press", {"message_id": "9", "data": "x"}, "'as' is not a person's number."),
        ("/chats/nobody/say", {"text": "x"}, "That is no chat's number."),
    ],
)
async def test_what_does_not_fit_is_said_on_the_page(
    box: Running, path: str, fields: dict[str, str], words: str
) -> None:
    assert words in visible(await submit(box, path, **fields))
    assert box.sandbox.world.updates == []


async def test_untrusted_text_is_text_everywhere(box: Running) -> None:
    await box.api("say", as_=OWNER, text=HOSTILE, name=HOSTILE)
    keys = {"inline_keyboard": [[{"text": HOSTILE, "callback_data": HOSTILE}]]}
    link = [{"type": "text_link", "offset": 0, "length": 3, "url": "javascript:alert(1)"}]
    await box.bot("sendMessage", chat_id=OWNER, text=HOSTILE, reply_markup=keys, entities=link)
    raw = f"From: {HOSTILE}\r\nSubject: {HOSTILE}\r\n\r\n{HOSTILE}\r\n"
    payload = {"from": HOSTILE, "raw": raw, "message_id": HOSTILE, "subject": HOSTILE}
    box.sandbox.accept(Accepted("email", "", HOSTILE, payload, HOSTILE))
    for path in ("/", f"/chats/{OWNER}", "/mail", f"/chats/{OWNER}?error=%3Cscript%3Ealert(1)"):
        html = await page(box, path)
        assert "<script>alert" not in html, path
        assert 'href="javascript' not in html, path
    assert HOSTILE in visible(await page(box, "/mail"))


async def test_pages_allow_no_foreign_and_no_inline_code(box: Running) -> None:
    async with box.http.get(box.url + "/") as answer:
        policy = answer.headers["Content-Security-Policy"]
        html = await answer.text()
    assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self';")
    assert "unsafe" not in policy
    assert re.findall(r"<script(?![^>]* src=\"/static/)", html) == []
    assert re.findall(r" (?:style|on\w+)=", html) == []
    assert re.findall(r"(?:src|href)=\"(?:https?:)?//", html) == []
    for asset in re.findall(r"\"(/static/[^\"]+)\"", html):
        await page(box, asset)


async def test_the_mails_are_shown_with_headers_and_text(box: Running) -> None:
    raw = (
        "From: Butlers <b@x.test>\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"
        "In-Reply-To: <q@x.test>\r\n\r\nHello there\r\n"
    )
    payload = {"from": "b@x.test", "raw": raw, "message_id": "<1@x.test>", "subject": "Grüße"}
    box.sandbox.accept(Accepted("email", "", "owner@sandbox.test", payload, "<1@x.test>"))
    text = visible(await page(box, "/mail"))
    for words in ("Grüße", "Butlers <b@x.test>", "<q@x.test>", "Hello there", "b@x.test → owner@sandbox.test"):
        assert words in text


async def test_a_change_is_announced_to_open_pages(box: Running) -> None:
    async with box.http.get(box.url + "/events") as stream:
        assert await stream.content.readline() == b"data: 0\n"
        await stream.content.readline()
        await box.api("say", as_=OWNER, text="news")
        assert await stream.content.readline() == b"data: 1\n"


@pytest.mark.parametrize("path", ["/", "/api/journal", "/bot42:A/getMe", "/static/sandbox.css"])
@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.test"}, {"Host": "127.0.0.1.evil.test:80"}, {"Origin": "https://evil.test"}, {"Origin": "null"}],
)
async def test_a_foreign_name_or_page_is_refused(box: Running, path: str, headers: dict[str, str]) -> None:
    async with box.http.get(box.url + path, headers=headers) as answer:
        assert answer.status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_foreign_page_makes_no_picture_of_what_programs_call(box: Running, site: str) -> None:
    sends = f"/bot42:A/sendMessage?chat_id={OWNER}&text=x"
    for path, status in ((sends, 403), ("/bot42:A/getUpdates?offset=9", 403), ("/api/journal", 403), ("/", 200)):
        async with box.http.get(box.url + path, headers={"Sec-Fetch-Site": site}) as answer:
            assert answer.status == status, path
    assert await box.journal() == []


@pytest.mark.parametrize(
    "path", ["/api/say", "/api/press", "/api/faults", f"/chats/{OWNER}/say", "/bot42:A/sendMessage"]
)
async def test_a_foreign_page_cannot_post(box: Running, path: str) -> None:
    async with box.http.post(box.url + path, data={"text": "x"}, headers={"Origin": "https://evil.test"}) as answer:
        assert answer.status == 403
    assert await box.journal() == []
    assert box.sandbox.world.updates == []


@pytest.mark.parametrize(
    ("name", "asked", "status", "words"),
    [
        ("say", {"text": "x"}, 400, "'as' is not a whole number."),
        ("say", {"as": -5, "text": "x"}, 400, "'as' is not a person's number."),
        ("say", {"as": 5, "chat": 6, "text": "x"}, 400, "private to person 6"),
        ("say", {"as": 5, "text": "x" * 4097}, 400, "1 to 4096"),
        ("say", {"as": 5, "text": "x", "reply_to": 9}, 404, "no message 9 in chat 5"),
        ("press", {"as": 5, "message_id": 9, "data": "x"}, 404, "no message 9 in chat 5"),
        ("press", {"as": 5, "message_id": "9", "data": "x"}, 400, "'message_id' is not a whole number."),
        ("react", {"as": 5, "message_id": 9, "emoji": "👍"}, 404, "no message 9 in chat 5"),
    ],
)
async def test_acting_as_a_person_is_checked(
    box: Running, name: str, asked: dict[str, object], status: int, words: str
) -> None:
    async with box.http.post(f"{box.url}/api/{name}", json=asked) as answer:
        assert answer.status == status
        assert words in (await answer.json())["error"]
    assert box.sandbox.world.updates == []


async def test_health(box: Running) -> None:
    assert '"ok"' in await page(box, "/healthz")


async def test_what_is_broken_by_the_page_hits_others_and_not_the_owners_cards(box: Running) -> None:
    assert "Nothing. Every message arrives." in await page(box, "/break")
    broken = visible(await submit(box, "/break", what="blocked", times="2", spared="yes", do="break"))
    assert "refuses: the person has blocked the bot (403) 2 times for others than you" in " ".join(broken.split())
    assert (await box.bot("sendMessage", chat_id=OWNER, text="a card"))[0] == 200
    assert [(await box.bot("sendMessage", chat_id=43, text="hello"))[0] for _ in range(3)] == [403, 403, 200]
    assert "Nothing. Every message arrives." in await page(box, "/break")
    await submit(box, "/break", what="bounced", times="1", do="break")
    await submit(box, "/break", what="too_many", times="1", do="break")
    assert len(box.sandbox.faults.armed()) == 2
    assert (await box.bot("sendMessage", chat_id=OWNER, text="to me"))[0] == 429
    for one in BREAKAGES:
        await submit(box, "/break", what=one.key, times="1", spared="yes", do="break")
    assert len(box.sandbox.faults.armed()) == len(BREAKAGES) + 1
    await submit(box, "/break", do="repair")
    assert box.sandbox.faults.armed() == []
    for odd in ({"what": "everything", "times": "1"}, {"what": "blocked", "times": "0"}, {"what": "blocked"}):
        assert "That breaks nothing." in unescape(await submit(box, "/break", do="break", **odd))
    async with box.http.post(f"{box.url}/break", data={"do": "repair"}, headers={"Origin": "http://x.test"}) as answer:
        assert answer.status == 403
