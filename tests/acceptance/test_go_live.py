"""`butlers go-live`: out of the sandbox, with the contacts and rules that the owner takes along."""

import asyncio
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.rig import fresh
from tests.rig.bench import OWNER, Bench
from tests.rig.fleet import Fleet
from tests.rig.waiting import LONGEST

pytestmark = pytest.mark.asyncio(loop_scope="session")
ROOT = Path(__file__).resolve().parents[2]
SANDBOX = "http://127.0.0.1:{sandbox}"
# As the sandbox numbers its people: no real chat has such a number.
MADE_UP = 5000000000000003
RULES = "SELECT realm, active, max_uses FROM shared.approval_rules ORDER BY created_at"
VALUES = """
SELECT i.value FROM shared.contact_info i JOIN shared.contacts c ON c.id = i.contact_id
WHERE c.name = $1 ORDER BY i.value
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def playing(bench: Bench) -> AsyncIterator[Fleet]:
    """A fleet in the sandbox, which is also where the live bot would be."""
    made = await Fleet.start(await bench.house(BUTLERS_TELEGRAM_BASE_URL=SANDBOX))
    yield made
    await made.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def leaving(bench: Bench) -> AsyncIterator[Fleet]:
    """Another, which is started again on its bot."""
    made = await Fleet.start(await bench.house(BUTLERS_TELEGRAM_BASE_URL=SANDBOX))
    yield made
    await made.stop()


def token_file(fleet: Fleet, bot: str = "77") -> str:
    file = fleet.house.folder / f"token{bot}"
    file.write_text(f"{bot}:live\n")
    return str(file)


def credentials(fleet: Fleet) -> Path:
    return fleet.house.home / "keys" / "messenger" / "credentials.json"


async def butlers(fleet: Fleet, *words: str) -> str:
    """What the command printed; it must end well."""
    ended, said, wrong = await fleet.house.butlers(*words)
    assert (ended, wrong) == (0, ""), wrong
    return said


async def test_by_options_contacts_and_rules_go_along_and_what_was_made_up_stays(leaving: Fleet) -> None:
    chat, own = fresh.chat(), fresh.chat()
    anna = await leaving.contact("Anna", telegram=chat)
    await leaving.contact("Ben", telegram=MADE_UP)
    await butlers(leaving, "rules", "add", "--to", "Anna", "--butler", "health", "--max-uses", "3")
    assert (await leaving.notify(channel="telegram", contact_id=anna, message=fresh.words("played")))["status"] == "ok"

    options = ("go-live", "--telegram-token-file", token_file(leaving), "--contacts", "all", "--rules", "all")
    said = await butlers(leaving, *options)
    assert f"Left behind: Ben, telegram {MADE_UP}." in said
    assert "health may write to Anna by telegram" in said
    assert credentials(leaving).stat().st_mode & 0o777 == 0o600
    await leaving.kill("up", signal.SIGTERM)
    await leaving.restart("up")
    [code] = re.findall(r"https://t\.me/sandbox_77_bot\?start=(\S+)", said)
    await leaving.outside.say(own, f"/start {code}")
    await leaving.outside.until(lambda e: e.to == str(own) and "Linked." in e.text)

    for to, whom in ((own, {}), (chat, {"contact_id": anna})):
        words = fresh.words("live")
        assert (await leaving.notify(channel="telegram", message=words, **whom))["status"] == "ok"
        assert (await leaving.outside.arrived(words, to)).token_id == "77"
    moved = await butlers(leaving, *options[:1], "--telegram-token-file", token_file(leaving, "88"), *options[3:])
    assert "health may write to Anna by telegram" in moved
    assert f"Left behind: Owner, telegram {OWNER}." in moved
    assert "Then open https://t.me/sandbox_88_bot and press Start" in moved
    [live] = await leaving.sql("SELECT id::text FROM shared.approval_rules WHERE realm = '88'")
    await butlers(leaving, "rules", "revoke", live["id"])
    await leaving.contact("Carl", telegram=fresh.chat())
    again = await butlers(leaving, "go-live", "--contacts", "Anna", "--rules", "all")
    assert "which has ended on Telegram." in again
    assert "Carl" not in again
    assert "Everything is set up." in again
    more = await butlers(leaving, *options[:1], "--telegram-token-file", token_file(leaving, "99"), *options[3:])
    assert "which has ended on Telegram." in more, "nor does it come back with another bot"
    back = await butlers(leaving, *options[:1], "--telegram-token-file", token_file(leaving), *options[3:])
    assert "which has ended on Telegram." in back, "nor with the first one"
    made = [tuple(row) for row in await leaving.sql(RULES)]
    assert made == [("sandbox", True, 3), ("77", False, 2), ("88", False, 1)], "each for as often as it was left"


REFUSED = [
    ((), "No channel is live yet. Give --telegram-token-file or --smtp-url-file."),
    (("--smtp-url-file",), "Mails need an address that they come from. Give --email-from."),
    (("--telegram-token-file",), "Nobody is here to say what to take along. Give --contacts all, none, or a list."),
    (("--telegram-token-file", "--contacts", "Zoe"), "No contact matches `Zoe`. See `butlers contacts list`."),
]


async def test_where_nobody_can_be_asked_it_names_the_option_and_changes_nothing(playing: Fleet) -> None:
    await playing.contact("Ben", telegram=MADE_UP)
    url = playing.house.folder / "url"
    url.write_text("smtps://me:secret@mail.people.example.org\n")
    files = {"--telegram-token-file": [token_file(playing)], "--smtp-url-file": [str(url)]}
    for words, wrong in REFUSED:
        given = [part for word in words for part in (word, *files.get(word, []))]
        ended, _, said = await playing.house.butlers("go-live", *given)
        assert (ended, said) == (1, f"butlers: {wrong}\n")
    assert not credentials(playing).exists()
    assert [row["value"] for row in await playing.sql(VALUES, "Ben")] == [str(MADE_UP)]


@pytest.mark.slow
async def test_by_answers_from_a_terminal(playing: Fleet) -> None:
    await playing.contact("Anna", email="anna@people.example.org")
    await butlers(playing, "rules", "add", "--to", "Anna", "--butler", "health")
    server = f"smtp://127.0.0.1:{playing.house.base + 4}"
    answers = {
        "@BotFather": "",
        "mail server": server,
        "mails come from": "butlers@people.example.org",
        "mailbox": "",
        "own e-mail": "me@people.example.org",
        "Take along all, none, or these names": "none",
        "Take along all, none, or these ids": "none",
    }
    shown = await asyncio.to_thread(typed, playing, answers)
    assert server not in shown, "what is secret was shown"
    assert "Left behind: Anna, email anna@people.example.org." in shown
    kept = json.loads(credentials(playing).read_text())
    assert kept == {"BUTLERS_SMTP_URL": server, "BUTLERS_EMAIL_FROM": "butlers@people.example.org"}
    assert [row["value"] for row in await playing.sql(VALUES, "Owner")] == [str(OWNER), "me@people.example.org"]
    assert [row["realm"] for row in await playing.sql(RULES)] == ["sandbox"]


async def test_a_start_without_the_bot_takes_the_address_of_nobody_who_was_met_there(bench: Bench) -> None:
    live = await Fleet.start(await bench.house(BUTLERS_TELEGRAM_TOKEN="77:live", BUTLERS_TELEGRAM_BASE_URL=SANDBOX))
    chat = fresh.chat()
    bob = await live.contact("Bob", telegram=chat)
    await butlers(live, "rules", "add", "--to", "Bob", "--channel", "telegram")
    assert (await live.notify(channel="telegram", contact_id=bob, message=fresh.words("live")))["status"] == "ok"
    assert await live.kill("up", signal.SIGTERM) == [0]
    await live.abandon()
    without = {name: value for name, value in live.house.env.items() if name != "BUTLERS_TELEGRAM_TOKEN"}
    back = await Fleet.start(replace(live.house, env=without))
    options = ("--telegram-token-file", token_file(back), "--contacts", "none", "--rules", "none")
    assert "Bob" not in await butlers(back, "go-live", *options)
    assert [row["value"] for row in await back.sql(VALUES, "Bob")] == [str(chat)]
    await back.stop()


async def test_another_mail_account_keeps_nothing_of_the_one_before(playing: Fleet) -> None:
    rest = ("--owner-email", "me@people.example.org", "--contacts", "all", "--rules", "all")

    def account(name: str, password: str = "first") -> tuple[str, ...]:
        for scheme, option in (("smtps", "smtp"), ("imaps", "imap")):
            file = playing.house.folder / f"{option}-{name}"
            file.write_text(f"{scheme}://{name}:{password}@mail.people.example.org\n")
        return ("go-live", "--smtp-url-file", str(playing.house.folder / f"smtp-{name}"), *rest)

    mailbox = str(playing.house.folder / "imap-old")
    address = ("--email-from", "old@people.example.org")
    assert "mailbox" not in await butlers(playing, *account("old"), *address, "--imap-url-file", mailbox)
    assert "mailbox" not in await butlers(playing, *account("old", "second")), "it is the same account"
    assert json.loads(credentials(playing).read_text())["BUTLERS_IMAP_URL"].startswith("imaps://old:first@")
    ended, _, wrong = await playing.house.butlers(*account("new"))
    assert (ended, wrong) == (1, f"butlers: {REFUSED[1][1]}\n")
    said = await butlers(playing, *account("new"), "--email-from", "new@people.example.org")
    assert "The mailbox of the mail account before is read no more." in said
    assert json.loads(credentials(playing).read_text()) == {
        "BUTLERS_SMTP_URL": "smtps://new:first@mail.people.example.org",
        "BUTLERS_EMAIL_FROM": "new@people.example.org",
    }


def typed(fleet: Fleet, answers: dict[str, str]) -> str:
    """Answer each question as it comes, at a terminal; what that showed."""
    ours, theirs = os.openpty()
    shown, waiting = "", dict(answers)
    command = [sys.executable, "-m", "butlers.cli", "go-live"]
    with subprocess.Popen(
        command,
        env={**fleet.house.env, "PYTHONPATH": str(ROOT)},
        cwd=fleet.house.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        asked = ""
        while True:
            if not select.select([ours], [], [], LONGEST)[0]:
                process.terminate()  # it asks what nobody answers here
            try:
                asked += (read := os.read(ours, 4096).decode())
            except OSError:  # the last one has left the terminal
                break
            shown += read
            for question in [one for one in waiting if one in asked and asked.endswith(" ")]:
                os.write(ours, f"{waiting.pop(question)}\n".encode())
                asked = ""
        os.close(ours)
        assert process.wait(timeout=LONGEST) == 0, shown
    assert not waiting, shown
    return shown
