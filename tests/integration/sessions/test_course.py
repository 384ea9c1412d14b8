"""The course of a session with a real child: what it says, its limits, its end, and what the owner hears of it."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import jwt
import pytest

from butlers.butler import ToolCall
from butlers.daemon.app import stepped
from butlers.runtime.base import Limits
from butlers.runtime.command import CommandSettings
from butlers.runtime.registry import RUNTIMES
from butlers.runtime.script import ScriptSettings, Step
from butlers.sessions.course import Place, folder_of, remove_folder
from butlers.sessions.notices import BEGINS
from butlers.sessions.runner import MOST, Runner
from butlers.sessions.settings import Setup
from butlers.tools.desk_notify import popups
from butlers.tools.notify import tell
from shared.auth import keystore
from shared.auth.tokens import Caller, Signer, mint_session_token
from shared.db.pool import Record
from shared.errors import ButlersError
from shared.storage import contacts, notices, rules, session_steps, sessions
from shared.storage.notices import Notice
from shared.storage.rules import NewRule
from tests.integration.database.test_privileges import logged_in
from tests.integration.house import House
from tests.rig import outside_sessions
from tests.rig.children import child_of, children
from tests.rig.waiting import LONGEST, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
ASKED: Final = """
INSERT INTO shared.session_steps (session_id, butler, seq, tool, arguments_hash, status, ended_at)
SELECT id, butler, 1, 'ask_user', repeat('0', 64), 'ok', clock_timestamp() FROM shared.sessions WHERE id = $1
"""
SAYS: Final = Step(say="I heard ${prompt}.")
SHORT: Final = Step(wait=0.01)
LONG: Final = Step(wait=60)
STANDARD: Final = Limits()
# A tenth of the product's own; but for the lease, since a busy machine stands still for seconds.
QUICK: Final[Mapping[str, float]] = {"session_look": 0.05, "session_renew": 0.1}


def place(house: House, steps: Sequence[Step], limits: Limits = STANDARD, butler: str = "greeter") -> Place:
    """A butler with this script; nothing listens where its child would call."""
    context = house.context(butler, **QUICK)
    setup = Setup(RUNTIMES["script"], ScriptSettings(steps=tuple(steps)), 1, limits, 10.0)
    return Place(context, signer(house, butler), "Brief.", "http://127.0.0.1:9", setup)


def signer(house: House, name: str = "greeter") -> Signer:
    return Signer(name, keystore.read(house.settings.home, name).private_pem, house.assembly.directory.clock)


class Run:
    """A runner at work, as in a process that is told to stop at the end."""

    def __init__(self, *at: Place, most: int = MOST) -> None:
        self.runner, self.stopping = Runner(most), asyncio.Event()
        for one in at:
            self.runner.add(one)

    async def __aenter__(self) -> None:
        self.task = asyncio.create_task(self.runner.run(self.stopping))

    async def __aexit__(self, *_: object) -> None:
        self.stopping.set()
        await self.task


async def enqueue(house: House, prompt: str, cause: str = "test", **more: object) -> str:
    session_id = str(uuid4())
    asked = {"session_id": session_id, "butler": "greeter", "cause": cause, "prompt": prompt, **more}
    await sessions.enqueue(house.sql, **asked)  # type: ignore[arg-type]
    return session_id


async def until_it_is(house: House, session_id: str, wanted: str, within: float = LONGEST) -> Record:
    async with asyncio.timeout(within):
        while True:
            row = await house.sql.fetchrow("SELECT * FROM shared.sessions WHERE id = $1", UUID(session_id))
            assert row is not None
            if row["status"] == wanted:
                return row
            await asyncio.sleep(0.02)


async def told(house: House, text: str) -> int:
    """How many messages of the owner's chat hold this text, once there is one."""
    async with asyncio.timeout(LONGEST):
        while not (found := [one for one in await house.box.journal() if text in str(one)]):
            await asyncio.sleep(0.05)
    return len(found)


async def test_a_session_says_its_words_and_leaves_nothing_behind(house: House, message: str) -> None:
    session_id = await enqueue(house, message)
    async with Run(place(house, [SHORT, SAYS, Step(say="Good night.")])):
        row = await until_it_is(house, session_id, "done")
    assert row["said"] == f"I heard {message}.\nGood night."
    assert (row["runtime"], row["attempt"], row["untold"]) == ("script", 1, None)
    assert row["holder"] is row["lease_until"] is None
    assert not children(session_id)
    assert not folder_of(house.settings.home, session_id).exists()


async def test_a_sessions_token_outlasts_a_computers_sleep(house: House, message: str) -> None:
    """A clock that is read now and then stands before the sleep for a moment after it."""
    session_id = await enqueue(house, message)
    async with Run(place(house, [LONG])):
        await until_it_is(house, session_id, "running")
        token = folder_of(house.settings.home, session_id) / "token"
        await until(lambda: token.exists() and bool(token.read_text()))
        found = jwt.decode(token.read_text(), options={"verify_signature": False})
        await sessions.ask_to_stop(house.sql, session_id)
        await until_it_is(house, session_id, "stopped")
    assert found["exp"] - found["iat"] > timedelta(days=3).total_seconds()


async def test_a_session_whose_writer_was_blocked_while_it_waited_never_begins(house: House, message: str) -> None:
    session_id = await enqueue(house, message, "message")  # of whom the conversation shows nothing any more
    async with Run(place(house, [SAYS])):
        row = await until_it_is(house, session_id, "stopped")
    assert (row["said"], row["steps"], row["untold"]) == ("", 0, None)
    assert "blocked" in row["outcome"]


async def test_butlers_take_turns_where_there_are_fewer_places(house: House, message: str) -> None:
    await enqueue(house, message)
    last = await enqueue(house, message)
    await enqueue(house, message, butler="health")
    async with Run(place(house, [SHORT]), place(house, [SHORT], butler="health"), most=1):
        await until_it_is(house, last, "done")
    began = "SELECT butler FROM shared.sessions WHERE prompt = $1 ORDER BY began_at"
    assert [row["butler"] for row in await house.sql.fetch(began, message)] == ["greeter", "health", "greeter"]


async def test_what_the_owner_answered_waits_for_nobody_else_s_sessions(house: House, message: str) -> None:
    await enqueue(house, message, "butler:health")
    last = await enqueue(house, message, "butler:health")
    heard = place(house, [Step(wait=0.5)])
    heard = replace(heard, setup=replace(heard.setup, runtime=replace(heard.setup.runtime, hears=True)))
    async with house.context("messenger").db.work() as connection:
        await notices.add(connection, "greeter", Notice("owner", "answer", message, trust="owner", wakes=True))
    await house.sql.execute(
        "UPDATE shared.notices SET created_at = created_at - interval '1 hour' WHERE text = $1", message
    )
    async with Run(heard):
        await until_it_is(house, last, "done")
    began = "SELECT cause FROM shared.sessions WHERE prompt IN ($1, $2) ORDER BY began_at"
    assert [row["cause"] for row in await house.sql.fetch(began, message, BEGINS)] == ["notice", *["butler:health"] * 2]


async def test_what_the_owner_asks_has_places_that_nobody_else_takes(house: House, message: str) -> None:
    busy, waits = await enqueue(house, message), await enqueue(house, message, butler="health")
    async with Run(place(house, [LONG]), place(house, [LONG], butler="health"), most=1):
        await until_it_is(house, busy, "running")
        await asyncio.sleep(0.3)  # as long as whoever took that place would need to see what waits
        asked = await enqueue(house, message, "ask", butler="health")
        await until_it_is(house, asked, "running")
        assert await house.sql.fetchval("SELECT status FROM shared.sessions WHERE id = $1", UUID(waits)) == "waiting"
    await house.sql.execute("DELETE FROM shared.sessions WHERE prompt = $1", message)


LOCK: Final = "SET LOCAL idle_in_transaction_session_timeout = 0; SELECT id FROM shared.sessions FOR UPDATE"


NOTICE: Final = """
INSERT INTO shared.notices (id, butler, source, kind, text, trust)
VALUES ($1, 'greeter', 'owner', 'decision', 'No.', 'owner')
"""


async def test_what_another_butler_asks_takes_no_notice_away(house: House, message: str) -> None:
    """Who asks chooses the id of what it asks, and may know those of notices."""
    session_id = await enqueue(house, message)
    await house.sql.execute("UPDATE shared.sessions SET cause = 'butler:health' WHERE id = $1", UUID(session_id))
    await house.sql.execute(NOTICE, UUID(session_id))
    async with Run(place(house, [SHORT])):
        await until_it_is(house, session_id, "done")
    stands = "SELECT state FROM shared.notices WHERE id = $1"
    assert await house.sql.fetchval(stands, UUID(session_id)) != "done"
    await house.sql.execute("DELETE FROM shared.notices")  # which would begin a session of its own


async def test_whatever_a_program_leaves_in_its_folder_is_removed(tmp_path: Path) -> None:
    """As deep as a path may be long: the standard library's own way gives up before."""
    folder = tmp_path / "session"
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    try:
        await remove_folder(folder)
        assert not folder.exists()
        await remove_folder(folder)
    finally:
        # Nor does pytest get rid of it.
        cleaning = await asyncio.create_subprocess_exec("/bin/rm", "-rf", str(folder))
        await cleaning.wait()


async def _held(house: House, session_id: str, seconds: float) -> None:
    async with logged_in(house, "greeter") as holder:
        await holder.execute(LOCK.replace(" FOR", f" WHERE id = '{session_id}' FOR"))
        await asyncio.sleep(seconds)


@pytest.mark.slow
async def test_a_butler_that_holds_its_sessions_does_not_hold_up_the_others(house: House, message: str) -> None:
    """Each wait is shorter than any bound for one; all together they take fifteen seconds."""
    waiting = [await enqueue(house, message) for _ in range(10)]
    holding = [asyncio.create_task(_held(house, one, 1.5 * n)) for n, one in enumerate(waiting, start=1)]
    await asyncio.sleep(0.5)
    other = await enqueue(house, message, butler="health")
    async with Run(place(house, [SHORT]), place(house, [SHORT], butler="health")), asyncio.timeout(9):
        await until_it_is(house, other, "done")
    for one in holding:
        one.cancel()
    await asyncio.gather(*holding, return_exceptions=True)


async def test_a_session_whose_time_is_up_is_ended_and_the_owner_told(house: House, message: str) -> None:
    session_id = await enqueue(house, message)
    async with Run(place(house, [LONG], Limits(minutes=0.01))):
        row = await until_it_is(house, session_id, "limit")
        assert "0.01 minutes" in row["outcome"]
        assert await told(house, message) == 1
    assert not children(session_id)


async def test_a_killed_child_is_begun_again_only_if_it_had_called_nothing(house: House, message: str) -> None:
    session_id = await enqueue(house, message)
    async with Run(place(house, [LONG])):
        os.kill(await child_of(session_id), signal.SIGKILL)
        while (await until_it_is(house, session_id, "running"))["attempt"] == 1:
            await asyncio.sleep(0.02)
        child = await child_of(session_id)
        async with house.context("greeter").db.work() as connection:
            await session_steps.begun(connection, "greeter", session_id, "notify", {})
        os.kill(child, signal.SIGKILL)
        row = await until_it_is(house, session_id, "lost")
        assert (row["attempt"], "was ended by SIGKILL" in row["outcome"]) == (2, True)
        async with asyncio.timeout(LONGEST):
            while await house.sql.fetchval("SELECT untold FROM shared.sessions WHERE id = $1", UUID(session_id)):
                await asyncio.sleep(0.05)
    # Once that it is begun again, and once that it is not.
    assert await told(house, message) == 2
    assert not children(session_id)


async def test_a_program_that_fails_runs_once_and_the_owner_hears_why(
    house: House, message: str, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    text = f"echo once >> {ran}; echo The account is locked. >&2; exit 3"
    program = Setup(RUNTIMES["command"], CommandSettings(command=("/bin/sh", "-c", text)), 1, STANDARD, 10.0)
    session_id = await enqueue(house, message)
    async with Run(replace(place(house, [SHORT]), setup=program)):
        row = await until_it_is(house, session_id, "failed")
        assert row["outcome"] == "`sh` ended with exit code 3 before it was done: The account is locked."
        assert await told(house, f"The account is locked. It was asked: “{message}”") == 1
    assert ran.read_text() == "once\n"


async def test_what_a_killed_process_ran_is_lost_by_its_lease(house: House, message: str) -> None:
    """A row as a process leaves it that is killed in the middle of a session which has called something."""
    session_id = await enqueue(house, message)
    await house.sql.execute(
        """UPDATE shared.sessions SET status = 'running', began_at = clock_timestamp(), attempt = 1, holder = 'gone',
        steps = 1, lease_until = clock_timestamp() + interval '0.3 s' WHERE id = $1""",
        UUID(session_id),
    )
    async with Run(place(house, [LONG])):
        await until_it_is(house, session_id, "lost")
        assert await told(house, message) == 1


async def test_a_daemon_that_stops_ends_its_children_and_leaves_its_queue(house: House, message: str) -> None:
    session_id, next_id = await enqueue(house, message), await enqueue(house, f"{message}, then")
    async with Run(place(house, [LONG])):
        await child_of(session_id)
    assert not children(session_id)
    rows = await house.sql.fetch("SELECT id::text, status, attempt FROM shared.sessions WHERE status = 'waiting'")
    assert {(row["id"], row["attempt"]) for row in rows} == {(session_id, 1), (next_id, 0)}
    await house.sql.execute("DELETE FROM shared.sessions WHERE status = 'waiting'")


async def test_a_butler_that_is_taken_out_ends_its_sessions_and_the_runner_goes_on(house: House, message: str) -> None:
    session_id = await enqueue(house, message)
    run = Run(place(house, [LONG]))
    async with run:
        await child_of(session_id)
        run.runner.remove("greeter")
        await until_it_is(house, session_id, "waiting")
        assert not children(session_id)
        run.runner.add(place(house, [SAYS]))
        assert (await until_it_is(house, session_id, "done"))["attempt"] == 2


async def test_the_owner_stops_what_runs(house: House, message: str) -> None:
    session_id = await enqueue(house, message)
    async with Run(place(house, [LONG])):
        await child_of(session_id)
        await sessions.ask_to_stop(house.sql, session_id)
        row = await until_it_is(house, session_id, "stopped")
        await until(lambda: None if children(session_id) else True)
    assert (row["untold"], row["told_nobody"]) == (None, False)


@pytest.mark.parametrize(("steps", "told_nobody"), [([SHORT], True), ([SAYS], False)])
async def test_who_asks_in_a_terminal_and_reads_nothing_is_told(
    house: House,
    message: str,
    steps: Sequence[Step],
    told_nobody: bool,  # noqa: FBT001  # a case
) -> None:
    session_id = await enqueue(house, message, "ask")
    async with Run(place(house, steps)):
        row = await until_it_is(house, session_id, "done")
        assert row["told_nobody"] is told_nobody
        if told_nobody:
            assert await told(house, message) == 1


async def test_words_that_are_heard_out_begin_by_themselves(house: House, message: str) -> None:
    at = place(house, [SHORT])
    # No look of the runner's own comes in time.
    rare = replace(at, context=house.context("greeter", session_look=600.0, said_together=timedelta(seconds=0.5)))
    session_id = await enqueue(house, message, "message")
    async with Run(rare):
        await until_it_is(house, session_id, "stopped")


async def test_a_message_that_is_answered_by_nobody_is_marked(house: House, message: str) -> None:
    session_id = await enqueue(house, message, request_context={"request_id": message})
    async with Run(place(house, [SAYS])):  # words that nobody reads
        assert (await until_it_is(house, session_id, "done"))["told_nobody"] is True
        assert await told(house, f"answered nobody. It was asked: “{message}”") == 1


async def test_no_key_that_a_session_states_keeps_the_owner_from_being_told(house: House, message: str) -> None:
    session_id = await enqueue(house, message, request_context={"request_id": message})
    for kind in ("session", "told"):
        stated = {"request_context": {"idempotency_key": f"{kind}:{session_id}:1:done"}}
        answer = await tell(
            house.context("greeter"), {"channel": "telegram", "message": f"I am first, {kind}.", **stated}
        )
        assert answer["status"] == "ok"
    async with Run(place(house, [SAYS])):  # words that nobody reads
        assert await told(house, f"answered nobody. It was asked: “{message}”") == 1


async def test_what_the_owner_forbids_to_say_keeps_nothing_else_untold(house: House, message: str) -> None:
    owner = await contacts.owner(house.sql)
    assert owner is not None
    muted = NewRule("deny", {"contact_id": owner["id"]}, "greeter")
    rule = await rules.add(house.sql, muted, owner["id"], realm="sandbox")
    first = await enqueue(house, f"{message} first", request_context={"request_id": message})
    async with Run(place(house, [SAYS])):
        async with asyncio.timeout(5):
            while (await until_it_is(house, first, "done"))["untold"] is not None:
                await asyncio.sleep(0.02)
        await rules.revoke(house.sql, rule, owner["id"])
        await enqueue(house, f"{message} then", request_context={"request_id": message})
        assert await told(house, f"answered nobody. It was asked: “{message} then”") == 1


async def test_words_that_are_none_keep_nothing_else_untold(house: House, message: str) -> None:
    """Such as a program that had the butler's login left behind."""
    first = await enqueue(house, f"{message} first")
    await house.sql.execute("UPDATE shared.sessions SET untold = ' ' WHERE id = $1", UUID(first))
    async with Run(place(house, [SAYS])):
        await enqueue(house, f"{message} then", request_context={"request_id": message})
        assert await told(house, f"answered nobody. It was asked: “{message} then”") == 1


async def test_what_the_provider_refuses_to_bring_keeps_nothing_else_untold(house: House, message: str) -> None:
    await house.fault(f"{message} first", "403", times=1)
    first = await enqueue(house, f"{message} first", request_context={"request_id": message})
    async with Run(place(house, [SAYS])):
        await until_it_is(house, first, "done")
        await enqueue(house, f"{message} then", request_context={"request_id": message})
        assert await told(house, f"answered nobody. It was asked: “{message} then”") == 1


async def test_who_asked_the_owner_something_has_answered(house: House, message: str) -> None:
    session_id = await enqueue(house, message, request_context={"request_id": message})
    async with Run(place(house, [Step(wait=0.3)])):
        await until_it_is(house, session_id, "running")
        await house.sql.execute(ASKED, UUID(session_id))
        row = await until_it_is(house, session_id, "done")
    assert (row["told_nobody"], row["untold"]) == (False, None)


async def test_a_popup_that_was_refused_has_told_nobody(house: House, message: str) -> None:
    context = house.context("greeter")
    [popup] = popups(context).tools
    session_id = await enqueue(house, message, request_context={"request_id": message})
    async with Run(place(house, [Step(wait=0.5)])):
        await until_it_is(house, session_id, "running")
        refused = ToolCall(Caller("greeter", "session", session_id), {"message": " "})
        await stepped(context, popup).handler(refused)
        assert (await until_it_is(house, session_id, "done"))["told_nobody"]


async def test_a_script_that_cannot_call_ends_as_failed_with_a_sentence(house: House, message: str) -> None:
    session_id = await enqueue(house, message)
    async with Run(place(house, [Step(call="notify")])):
        row = await until_it_is(house, session_id, "failed")
    assert row["outcome"].startswith("The call of `notify` was lost")


async def running_session(house: House, **more: object) -> tuple[str, str]:
    """A session that runs elsewhere, and its token."""
    session_id = await enqueue(house, "by a token", "test", **more)
    await house.sql.execute(
        "UPDATE shared.sessions SET status = 'running', began_at = clock_timestamp() WHERE id = $1", UUID(session_id)
    )
    return session_id, mint_session_token(signer(house), session_id, timedelta(minutes=1))


async def notify_by(house: House, token: str, said: str, **more: object) -> dict[str, object]:
    call = {"channel": "telegram", "message": said, **more}
    return dict(await house.assembly.local["greeter"].call(token, "notify", call))


async def test_all_that_is_due_at_one_moment_is_one_lineage(house: House, message: str) -> None:
    today, tomorrow = str(uuid4()), str(uuid4())
    _, first = await running_session(house, occurrence_id=today)
    _, again = await running_session(house, occurrence_id=today)
    _, later = await running_session(house, occurrence_id=tomorrow)
    answers = [await notify_by(house, token, message) for token in (first, again, later)]
    assert answers[0]["notification_id"] == answers[1]["notification_id"] != answers[2]["notification_id"]
    assert [answer["status"] for answer in answers] == ["ok"] * 3
    lineages = await house.sql.fetch(
        "SELECT lineage FROM shared.notifications WHERE envelope::text LIKE $1", f"%{message}%"
    )
    assert {row["lineage"] for row in lineages} == {f"occurrence:{today}", f"occurrence:{tomorrow}"}
    assert await told(house, message) == 2


async def test_each_call_is_a_step_and_the_token_ends_with_its_session(house: House, message: str) -> None:
    session_id, token = await running_session(house)
    await notify_by(house, token, message)
    await notify_by(house, token, "", recipient="nobody")
    steps = await session_steps.of(house.sql, session_id)
    assert [(step["seq"], step["tool"], step["status"]) for step in steps] == [
        (1, "notify", "ok"),
        (2, "notify", "error"),
    ]
    await outside_sessions.end(house.sql, session_id, "greeter")
    with pytest.raises(ButlersError, match="ended"):  # at once, though the token was good a moment ago
        await notify_by(house, token, f"{message}, later")


async def test_a_session_s_token_is_its_own_and_opens_no_hop(house: House) -> None:
    session_id, token = await running_session(house)
    with pytest.raises(ButlersError, match="is not for `health`"):
        await house.assembly.local["health"].call(token, "notify", {})
    forged = mint_session_token(signer(house, "health"), session_id, timedelta(minutes=1))
    with pytest.raises(ButlersError, match="is not for `greeter`"):
        await house.assembly.local["greeter"].call(forged, "notify", {})
    other = mint_session_token(signer(house), str(uuid4()), timedelta(minutes=1))
    with pytest.raises(ButlersError, match="has ended"):
        await house.assembly.local["greeter"].call(other, "notify", {})
    with pytest.raises(ButlersError):
        await house.assembly.local["messenger"].call(token, "route.execute", {})


async def test_a_place_shows_no_key(house: House) -> None:
    assert "secret-key" not in repr(replace(place(house, [SHORT]), keys={"ANTHROPIC": "secret-key"}))
