"""Named failpoints: the moments between two stages in which a daemon can be made to end itself, or to stand still.

No line of the product knows of them. In a forked child, after our packages are imported and before the daemon
starts, the one armed failpoint is put around a function, or around the commit of a unit of work; reached for the
nth time, the process sends itself SIGKILL, or SIGSTOP. A name is `stage.what`.
"""

import importlib
import inspect
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal

from tests.rig.symbols import leads_to

Moment = Literal["before", "after"]
OURS: Final = ("butlers", "messenger", "shared", "switchboard")
# Any function at all can be wrapped here, so that nothing is known of its arguments.
# ruff: noqa: ANN401
# What a failpoint may ask about its moment: arguments and result of a call, or the local names of who commits.
Seen = Mapping[str, Any]
When = Callable[[Seen], bool]


@dataclass(frozen=True, slots=True)
class Failpoint:
    """One moment: before or after a function, or a commit in it.

    Its site is a symbol as planted bugs name it (`send.send_part`), so that a file may move; `module:name` for
    what is not ours. Where a module is named that only imports the function, what is called from there counts alone.
    """

    name: str
    daemon: str
    site: str
    moment: Moment
    commit: bool = False
    when: When | None = None
    # A call counts only while this function (qualified name) is somewhere among its callers.
    within: str | None = None
    # It takes more than a healthy moment to come here: a dead neighbour, an owner who changes something.
    rare: bool = False


@dataclass(frozen=True, slots=True)
class Armed:
    """What is asked of a child: which failpoint, at which time of reaching it, and what to do there."""

    name: str
    nth: int = 1
    stop: bool = False

    @property
    def words(self) -> list[str]:
        """As it travels to the child."""
        return [self.name, str(self.nth), "stop" if self.stop else "kill"]


def before(name: str, daemon: str, site: str, **more: Any) -> Failpoint:
    """The moment before a call."""
    return Failpoint(name, daemon, site, "before", **more)


def after(name: str, daemon: str, site: str, **more: Any) -> Failpoint:
    """The moment after a call."""
    return Failpoint(name, daemon, site, "after", **more)


def commit(name: str, daemon: str, site: str, **more: Any) -> tuple[Failpoint, Failpoint]:
    """The moments before and after the commit of a unit of work that this function holds open."""
    return (
        Failpoint(f"{name}_before_commit", daemon, site, "before", commit=True, **more),
        Failpoint(f"{name}_after_commit", daemon, site, "after", commit=True, **more),
    )


def _true(seen: Seen) -> bool:
    return bool(seen["result"])


def _argument(*wanted: object) -> When:
    return lambda seen: any(one in wanted for one in seen["args"])


def _marker(kind: str | None = None) -> When:
    """The marker's own transaction, of any delivery or only of those of one class."""
    return lambda seen: (
        seen.get("verdict") is not None
        and "wires" in dir(seen["verdict"])
        and (kind is None or seen["claimed"].kind == kind)
    )


def _handles(*, words: bool) -> When:
    """The transaction in which a press or a command is handled, or another update."""
    return lambda seen: seen.get("row") is not None and seen["row"]["is_word"] is words


B, S, M = "butler", "switchboard", "messenger"
FAILPOINTS: Final[tuple[Failpoint, ...]] = (
    # Stages 1 to 5 in the butler
    after("accept.accepted", B, "notify.accept"),
    after("admit.lineage", B, "admit._lineage"),
    after("admit.gathered", B, "gather.gather"),
    after("admit.written", B, "notifications.admit"),
    *commit("admit.call", B, "admit.admit"),
    after("park.written", B, "pending_actions.park"),
    before("route.begun", B, "notify._route"),
    after("route.answered", B, "notify._route"),
    before("route.looked", B, "notify._after_hop"),
    before("wait.begun", B, "outcomes.wait_settled"),
    after("wait.answered", B, "outcomes.wait_settled"),
    after("tell.answered", B, "notify.tell"),
    *commit("withdraw.asked", B, "withdraw._withdraw"),
    before("heartbeat.begun", B, "rpc.DaemonClient.call", when=_argument("heartbeat")),
    after("heartbeat.told", B, "rpc.DaemonClient.call", when=_argument("heartbeat")),
    # Stage 6 in the Switchboard
    after("route.read", S, "switchboard.daemon.notify_request"),
    after("route.proved", S, "switchboard.daemon.demand_own_origin"),
    before("forward.begun", S, "route._hand_over", when=lambda seen: seen["kwargs"]["wait"]),
    after("forward.answered", S, "route._hand_over", when=lambda seen: seen["kwargs"]["wait"]),
    after("forward.rows_asked", S, "route._unanswered", rare=True),
    *commit("forward.noted", S, "route.Routes._write"),
    after("forward.told", S, "daemon.route"),
    *commit("admit.carried", S, "admit.admit"),
    *commit("sweep.looked", S, "sweeper.sweep"),
    before("sweep.begun", S, "route._hand_over", when=lambda seen: not seen["kwargs"]["wait"], rare=True),
    after("sweep.told", S, "route._hand_over", when=lambda seen: not seen["kwargs"]["wait"], rare=True),
    *commit("registry.tidied", S, "sweeper.tidy_for_ever"),
    *commit("registry.heard", S, "daemon.Heartbeats._together"),
    *commit("inbox.stored", S, "daemon.ingest"),
    # The Messenger takes a route
    before("execute.begun", M, "route_execute.take"),
    after("execute.answered", M, "route_execute.execute"),
    *commit("enqueue.put", M, "route_execute.enqueue"),
    # Stage 7
    *commit("claim.taken", M, "loop.claim_some", when=lambda seen: bool(seen.get("taken"))),
    *commit("check.asked", M, "mark.check"),
    before("prepare.begun", M, "send.prepare"),
    before("prepare.connected", M, "held_request.HeldBody.write_with_length"),
    after("prepare.telegram", M, "telegram.TelegramChannel.prepare"),
    after("prepare.greeted", M, "email.EmailChannel._client"),
    after("prepare.recipient", M, "email._expect"),
    after("prepare.mail", M, "email.EmailChannel.prepare"),
    *commit("prepare.failed", M, "send.prepare"),
    # Stage 8
    before("marker.locked", M, "mark._verdict", when=lambda seen: seen["kwargs"].get("marker")),
    after("marker.judged", M, "mark.authorize", when=lambda seen: seen["kwargs"].get("marker")),
    after("marker.written", M, "deliveries.mark"),
    after("marker.spent", M, "pending_actions.spend"),
    after("marker.approved", M, "pending_actions.move", within="_mark"),
    *commit("marker.set", M, "mark._asked", when=_marker()),
    *commit("marker.card", M, "mark._asked", when=_marker("card")),
    # Stage 9: around the committing byte
    before("byte.telegram_unwritten", M, "held_request.HeldBody.commit", within="TelegramPart.finish"),
    after("byte.telegram_written", M, "held_request.HeldBody.commit", within="TelegramPart.finish"),
    before("byte.mail_unwritten", M, "email.EmailChannel.finish"),
    before("byte.mail_written", M, "aiosmtplib.protocol:SMTPProtocol.read_response", within="EmailChannel.finish"),
    after("answer.telegram", M, "telegram.TelegramChannel.finish"),
    after("answer.mail", M, "email.EmailChannel.finish"),
    # Stage 10
    after("settle.chosen", M, "send._after"),
    after("settle.part", M, "attempts.end_part"),
    after("settle.turned", M, "deliveries.turn"),
    after("settle.told", M, "notifications.settle", within="part_ended"),
    *commit("settle.written", M, "settle.write_down"),
    # The Messenger's loops
    *commit("lease.renewed", M, "lease.renew"),
    *commit("tidy.done", M, "reaper.tidy"),
    after("reap.written", M, "deliveries.reap", when=_true, rare=True),
    after("card.queued", M, "kinds.write_missing", when=_true),
    after("card.checked", M, "approval._wires"),
    after("card.edited", M, "closing.edited", rare=True),
    after("poll.leased", M, "updates.take_lease", when=_true),
    before("poll.begun", M, "poller._poll_once"),
    *commit("poll.stored", M, "poller._poll_once"),
    before("press.judged", M, "pending_actions.decide"),
    after("press.decided", M, "approval.apply"),
    *commit("press.handled", M, "updates._turn", when=_handles(words=True)),
    after("press.shown", M, "telegram.TelegramChannel.call", within="_turn"),
    after("message.brought", M, "messages._bring_in"),
    *commit("message.handled", M, "updates._turn", when=_handles(words=False)),
    *commit("withdraw.looked", M, "rechecker._withdrawn", rare=True),
    after("withdraw.cancelled", M, "transitions.cancel", when=_true, rare=True),
    after("identifier.looked", M, "transitions.identified", when=_true, rare=True),
    *commit("identifier.asked", M, "rechecker.identified", when=lambda s: "notification_id" in s, rare=True),
    after("reopen.written", M, "reopener.reopen", when=_true, rare=True),
)
BY_NAME: Final[Mapping[str, Failpoint]] = {one.name: one for one in FAILPOINTS}


def arm(armed: Armed) -> None:
    """Put the failpoint in place; LookupError if the code has no such moment any more."""
    failpoint, left = BY_NAME[armed.name], [armed.nth]
    said = f"{'stands' if armed.stop else 'ends'} at {armed.name}\n".encode()
    number = signal.SIGSTOP if armed.stop else signal.SIGKILL

    def reached(seen: Seen, frame: FrameType | None) -> None:
        if failpoint.within and not called_by(failpoint.within, frame):
            return
        if failpoint.when is not None and not failpoint.when(seen):
            return
        left[0] -= 1
        if left[0] == 0:
            os.write(sys.stdout.fileno(), said)
            os.kill(os.getpid(), number)

    if failpoint.commit:
        owner, name = found("pool.Database.work")
        found(failpoint.site)
        setattr(owner, name, committing(getattr(owner, name), failpoint, reached))
    else:
        owner, name = found(failpoint.site)
        function = getattr(owner, name)
        wrapped = calling(function, failpoint.moment, reached)
        for place, called in ((owner, name), *imported(function, owner)):
            setattr(place, called, wrapped)


def imported(function: Callable[..., Any], owner: object) -> list[tuple[Any, str]]:
    """Where else a function goes by a name of its own, if its site is the module that defines it."""
    if not inspect.ismodule(owner) or function.__module__ != owner.__name__:
        return []
    places = [(sys.modules[module], vars(sys.modules[module])) for module in modules() if module in sys.modules]
    return [(place, name) for place, names in places for name, one in list(names.items()) if one is function]


def prepare(words: Sequence[str]) -> None:
    """In the child: say under which name this process will hold leases, and arm what is asked for, three words each."""
    assembly, _ = found("assembly.Assembly.__init__")
    begin = assembly.__init__

    def told(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        print(f"holds as {self._instance}", flush=True)

    assembly.__init__ = told
    for name, nth, what in zip(*[iter(words)] * 3, strict=True):
        arm(Armed(name, int(nth), what == "stop"))


def found(site: str) -> tuple[Any, str]:
    """Where the attribute of a site lives, and its name; LookupError if it is not there, or in several modules."""
    module, _, path = located(site).partition(":")
    found = _within(module, path)
    if found is None:
        raise LookupError(f"There is no {site}.")
    return found


@cache
def located(site: str) -> str:
    """The site as `module:name`, where it is given by the last words of its module's name."""
    if ":" in site:
        return site
    *words, name = site.split(".")
    split = [(words[:n], ".".join((*words[n:], name))) for n in range(1, len(words) + 1)]
    places = [
        f"{module}:{path}"
        for module in modules()
        for said, path in split
        if leads_to(said, module.split(".")) and _within(module, path) is not None
    ]
    if len(places) != 1:
        raise LookupError(f"{site} stands at {len(places)} places: {', '.join(places)}")
    return places[0]


@cache
def modules() -> tuple[str, ...]:
    """Every module of ours by its name, where this process would import it from."""
    found = []
    for package in OURS:
        root = Path(importlib.import_module(package).__path__[0])
        for path in sorted(root.rglob("*.py")):
            words = (package, *path.relative_to(root).with_suffix("").parts)
            found.append(".".join(words[:-1] if words[-1] == "__init__" else words))
    return tuple(found)


def _within(module: str, path: str) -> tuple[Any, str] | None:
    """The owner and the name of something that can be called, or None."""
    owner: Any = importlib.import_module(module)
    *way, name = path.split(".")
    for step in way:
        owner = getattr(owner, step, None)
        if inspect.ismodule(owner):
            return None  # another module's own
    return (owner, name) if callable(getattr(owner, name, None)) else None


def called_by(name: str, frame: FrameType | None) -> bool:
    """Whether a function of that name is among the callers."""
    while frame is not None:
        if frame.f_code.co_qualname == name:
            return True
        frame = frame.f_back
    return False


Reached = Callable[[Seen, FrameType | None], None]


def calling(function: Callable[..., Any], moment: Moment, reached: Reached) -> Callable[..., Any]:
    """The function with the moment around it."""
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            if moment == "before":
                reached({"args": args, "kwargs": kwargs}, sys._getframe(1))
            result = await function(*args, **kwargs)
            if moment == "after":
                reached({"args": args, "kwargs": kwargs, "result": result}, sys._getframe(1))
            return result

        return awaited

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if moment == "before":
            reached({"args": args, "kwargs": kwargs}, sys._getframe(1))
        result = function(*args, **kwargs)
        if moment == "after":
            reached({"args": args, "kwargs": kwargs, "result": result}, sys._getframe(1))
        return result

    return called


def committing(
    work: Callable[..., AbstractAsyncContextManager[Any]], failpoint: Failpoint, reached: Reached
) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """Units of work, of which those that the failpoint's function opens have the moment around their commit."""

    @asynccontextmanager
    async def watched(begun: AbstractAsyncContextManager[Any], holder: FrameType) -> AsyncIterator[Any]:
        async with begun as connection:
            yield connection
            if failpoint.moment == "before":
                reached(holder.f_locals, holder)
        if failpoint.moment == "after":
            reached(holder.f_locals, holder)

    def opened(database: Any, *first: Any) -> AbstractAsyncContextManager[Any]:
        holder, begun = sys._getframe(1), work(database, *first)
        while holder.f_code is opened.__code__ and holder.f_back is not None:
            holder = holder.f_back  # another failpoint is around this one
        opener = f"{holder.f_globals['__name__']}:{holder.f_code.co_qualname}"
        return watched(begun, holder) if opener == located(failpoint.site) else begun

    return opened
