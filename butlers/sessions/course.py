"""The course of one session: from its claim, by its runtime's child, to its end in the rows, within its limits."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, cast

from butlers.butler import Context
from butlers.runtime.base import Ended, Event, Job, Limits, Said, Used
from butlers.sessions import notices, prompt
from butlers.sessions.notices import Settled
from butlers.sessions.settings import Setup
from shared.auth.tokens import Signer, mint_session_token
from shared.db.pool import Connection
from shared.errors import ButlersError, Forbidden
from shared.home_folder import SESSIONS
from shared.loops import first_of, pause
from shared.storage import session_list, sessions
from shared.storage.notices import as_if_unshown
from shared.storage.sessions import Claimed, Course, Finish
from shared.telemetry.logs import logger

log = logger("butlers.sessions")
# How long a runtime may take to end its child once it is told to; then it is cut off, which kills the child.
LAST_SECONDS: Final = 8.0
DIED: Final = "Its process ended before it was done."
TOO_LATE: Final = "It took too long to say which butler takes a message, or was stopped by the owner."


@dataclass(frozen=True, slots=True)
class Place:
    """A butler whose sessions this process runs: its context, its key, where it is reached, and how it is run."""

    context: Context
    signer: Signer
    persona: str
    url: str
    setup: Setup
    # The keys of model servers that there are, by the name of their variable.
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class _Running:
    """A session that runs: why we end it, if we do, and whether it is still ours."""

    place: Place
    claimed: Claimed
    used: dict[str, float]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    why: Finish | None = None
    is_ours: bool = True
    # Nobody's fault: the daemon stops.
    with_daemon: bool = False

    def end(self, why: Finish | None = None) -> None:
        """Have the child ended; the first reason is the one that counts."""
        self.why = self.why or why
        self.stop.set()


async def play(place: Place, claimed: Claimed, stopping: asyncio.Event) -> None:
    """Run a claimed session to its end, whatever that is; afterwards no child and no folder of it is left."""
    running = _Running(place, claimed, dict(claimed.used))
    beside = [asyncio.create_task(_hold(running)), asyncio.create_task(_end_with(running, stopping))]
    folder = folder_of(place.context.home, claimed.id)
    ended: Ended | None = None
    try:
        asked = await prompt.worded(place.context, claimed)
        if asked is None:
            running.end(Finish("stopped", prompt.NOBODYS))
        else:
            await remove_folder(folder)  # what a process that was killed left
            ended = await _ended(running, _prepared(place, claimed, folder, asked))
    except Forbidden as nobody:
        ended = Ended("failed", nobody.message)
    except OSError as refused:
        ended = Ended("failed", f"The session's folder cannot be made: {refused.strerror}.")
    finally:
        for task in beside:
            task.cancel()
        await remove_folder(folder)
    if running.is_ours:
        await _settle(running, ended)


def folder_of(home: Path, session_id: str) -> Path:
    """Return the folder that a session has while it runs."""
    return home / SESSIONS / session_id


async def remove_folder(folder: Path) -> None:
    """Remove a session's folder with all that its program left there, however many files and however deep they lie.

    What cannot be removed stays, and keeps no session from its end.
    """
    with suppress(OSError):
        silent = asyncio.subprocess.DEVNULL
        removing = await asyncio.create_subprocess_exec("rm", "-rf", "--", str(folder), stderr=silent)
        await removing.wait()


def _prepared(place: Place, claimed: Claimed, folder: Path, asked: prompt.Worded) -> Job:
    """Make the session's folder with the working folder in it, and the file of its token."""
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    work = folder / "work"
    work.mkdir(mode=0o700, parents=True)
    limits = _limits(claimed)
    # Its row ends it; the time in it only bounds what a row that nobody ends any more would leave, and is far off where
    # clocks jump, as of a computer that slept.
    lasts = timedelta(minutes=limits.minutes, days=7)
    token_file = folder / "token"
    token_file.touch(mode=0o600, exist_ok=False)
    # INVARIANT: what only says who takes a message is shown no tool and can call none, whatever the message says.
    scope: Literal["session", "classifier"] = "classifier" if claimed.cause == session_list.CLASSIFY else "session"
    token_file.write_text(mint_session_token(place.signer, claimed.id, lasts, scope), encoding="utf-8")
    return Job(
        session_id=claimed.id,
        butler=place.context.name,
        persona=asked.persona(place.persona),
        prompt=asked.prompt,
        url=f"{place.url}/mcp",
        token_file=token_file,
        folder=work,
        limits=limits,
        settings=place.setup.own,
        environment=place.keys,
        nonce=claimed.nonce or "",
        words=claimed.prompt,
    )


def _limits(claimed: Claimed) -> Limits:
    """Return what is left of the limits after what earlier attempts used."""
    limits, used = claimed.limits, claimed.used
    return Limits(
        limits["minutes"],
        max(1, int(limits["turns"] - used.get("turns", 0))),
        max(1, int(limits["tokens"] - used.get("tokens", 0))),
        max(0.0, limits["dollars"] - used.get("dollars", 0)),
    )


async def _ended(running: _Running, job: Job) -> Ended | None:
    """Run the job to its own end; None if it had none, also where it would not end when told to."""
    why = running.place.setup.runtime.missing(job.settings, job.environment)
    if why is not None:
        return Ended("failed", why)
    playing = asyncio.create_task(_followed(running, job))
    told = asyncio.create_task(running.stop.wait())
    try:
        await asyncio.wait([playing, told], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([playing], timeout=LAST_SECONDS)
    finally:
        told.cancel()
        if not playing.done():
            playing.cancel()
            await asyncio.wait([playing])
    return None if playing.cancelled() else playing.result()


def _events(running: _Running, job: Job) -> AsyncGenerator[Event, None]:
    return cast("AsyncGenerator[Event, None]", running.place.setup.runtime.run(job, running.stop))


async def _followed(running: _Running, job: Job) -> Ended | None:
    """Write what the child says and uses as it does; the runtime keeps it within the limits of its job."""
    ended: Ended | None = None
    async with aclosing(_events(running, job)) as events:
        async for event in events:
            if isinstance(event, Said):
                await _note(running, event.text)
            elif isinstance(event, Used):
                before = running.claimed.used
                running.used = {name: before.get(name, 0) + amount for name, amount in asdict(event).items()}
                await _note(running)
            elif isinstance(event, Ended):
                ended = event
    return ended


async def _note(running: _Running, said: str = "") -> None:
    """Write it; what cannot be written now is of no weight for the session, but what was used is written again."""
    try:
        async with running.place.context.db.work() as connection:
            await sessions.note(connection, running.claimed, running.used, said)
    except ButlersError as lost:
        log.warning("what a session said is not written", session=running.claimed.id, why=lost.message)


async def _hold(running: _Running) -> None:
    """Renew the lease until the end; end the child if the owner asks for that, or if the session is ours no more."""
    timings = running.place.context.settings.timings
    renewed = time.monotonic()
    while not await pause(running.stop, timings.session_renew):
        try:
            async with running.place.context.db.work() as connection:
                held = await sessions.keep_lease(connection, running.claimed, timings.session_lease)
            renewed = time.monotonic()
        except ButlersError:
            held = "ours" if time.monotonic() - renewed < timings.session_lease.total_seconds() else "gone"
        if held == "stop":
            is_question = running.claimed.cause == session_list.CLASSIFY
            running.end(Finish("stopped", TOO_LATE if is_question else "It was stopped by the owner."))
        elif held == "gone":
            running.is_ours = False
            running.end()
    await _keep_while_ending(running, timings.session_lease, timings.session_renew)


async def _keep_while_ending(running: _Running, lease: timedelta, every: float) -> None:
    """Keep the lease while the child is being ended, until we are cancelled."""
    while running.is_ours:
        with suppress(ButlersError):
            async with running.place.context.db.work() as connection:
                await sessions.keep_lease(connection, running.claimed, lease)
        await asyncio.sleep(every)


async def _end_with(running: _Running, stopping: asyncio.Event) -> None:
    await first_of(stopping, running.stop)
    if stopping.is_set():
        running.with_daemon = True
        running.end()


async def _settle(running: _Running, ended: Ended | None) -> None:
    """Write the end; while the database is away, as long as the lease can last, after which the session is lost."""
    timings = running.place.context.settings.timings
    until = time.monotonic() + timings.session_lease.total_seconds()
    while True:
        try:
            async with running.place.context.db.work() as connection:
                course = await sessions.course(connection, running.claimed)
                if course is None:
                    return
                if _is_broken(running, ended):
                    why = "Its daemon was stopped." if running.with_daemon else ended.text if ended else DIED
                    await lose(connection, running.claimed, why, course)
                else:
                    came = _came_to(running, ended)
                    settled = await notices.settle(connection, running.claimed, is_read=came.status == "done")
                    await sessions.finish(connection, running.claimed, _finish(running.claimed, came, course, settled))
                return
        except ButlersError as away:
            log.warning("the end of a session is not written yet", session=running.claimed.id, why=away.message)
            if time.monotonic() > until:
                return
        await asyncio.sleep(timings.session_renew)


def _is_broken(running: _Running, ended: Ended | None) -> bool:
    """Return whether the session did not come to an end of its own, nor to one that we or the owner set."""
    if ended is not None and ended.outcome == "done":
        return False
    return running.why is None and (ended is None or running.with_daemon or ended.died)


def _came_to(running: _Running, ended: Ended | None) -> Finish:
    if ended is not None and (ended.outcome == "done" or running.why is None):
        return Finish(ended.outcome, ended.text)
    return running.why or Finish("failed", DIED)


def _finish(claimed: Claimed, came: Finish, course: Course, settled: Settled) -> Finish:
    """Return the end with its mark, and with what the owner has to be told.

    What stands in a terminal answers what was asked there, and no words that the owner wrote to the bot meanwhile.
    """
    silent = course.told_nobody and not (course.by_hand and came.outcome.strip())
    marked = came.status != "stopped" and (silent or settled.is_unanswered)
    how = ("answered nobody" if silent else "did not answer what it was told") if marked else None
    return replace(
        came,
        untold=_sentences(untold_of(claimed, came, how, settled), settled.given_up),
        told_nobody=marked,
    )


def untold_of(claimed: Claimed, came: Finish, silence: str | None, settled: Settled) -> str | None:
    """Return the sentences by which the owner hears of the end, or None where it is as it should be.

    Who asks in a terminal reads there what failed. Who stops it may think of what it began with alone.
    """
    said = " ".join(came.outcome.split())[:400]
    ended = f"ended, and {silence}." if silence else None
    in_vain = settled.is_unanswered or settled.given_up
    ways = {
        "limit": f"was ended. {said}",
        "failed": f"failed. {said}" if claimed.cause != "ask" else ended,
        "stopped": "was stopped, and nothing comes of what it was told." if in_vain else None,
    }
    way, who = ways.get(came.status, ended), f"A session of {claimed.butler}"
    return _sentences(f"{who} {way}", prompt.asked(claimed), settled.heard) if way else None


async def lose(connection: Connection, claimed: Claimed, why: str, course: Course | None) -> None:
    """Put a session that broke off back into its place if it has called nothing; else end it as lost.

    Either way the owner is told, once.
    """
    who = f"A session of {claimed.butler} broke off. {why}"
    again = f"{who} It had called nothing, and is begun again. {prompt.asked(claimed)}"
    if await sessions.put_back(connection, claimed, again):
        await as_if_unshown(connection, claimed.butler, claimed.id)
        return
    settled = await notices.settle(connection, claimed, is_read=False)
    over = _sentences(f"{who} It is not begun again. {prompt.asked(claimed)}", settled.heard, settled.given_up)
    marked = course is not None and (course.told_nobody or settled.is_unanswered)
    await sessions.finish(connection, claimed, Finish("lost", why, over, marked))


def _sentences(*said: str | None) -> str | None:
    return " ".join(filter(None, said)) or None
