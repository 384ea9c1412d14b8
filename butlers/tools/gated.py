"""The gate before a butler's own tools: a call that needs a yes waits for it, and runs at most once afterwards."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from butlers.butler import Answer, Arguments, Context, Loop, Result, Tool, ToolCall, misfit
from shared import answers
from shared.auth.tokens import Caller
from shared.db.decoding import storable
from shared.db.pool import BRIEFLY, Record
from shared.errors import ButlersError, InvalidInput, Locked, Unavailable
from shared.gate import tool_call
from shared.gate.tool_call import RUN_WITHIN, Begun, Declared
from shared.loops import either, pause
from shared.model import Decision
from shared.storage import tool_calls
from shared.storage.tool_calls import NewCall
from shared.telemetry.logs import logger

log = logger("butlers.gated")
AT_ONCE: Final = 4
TRIES: Final = 10
# A database that answers, and refuses an outcome so often, will not take it.
MOST_REFUSALS: Final = 3
LONGEST_RESULT: Final = 100_000
NEEDS: Final = "It may need the owner's approval: 'pending_approval' is final for you, it then runs by itself."
TOO_LONG: Final = "It ran; its result is too long to be kept."
UNDER_WAY: Final = frozenset({"approved", "executing"})


class Gated:
    """The gated tools of one butler, and the loop that runs what was let through."""

    def __init__(self, context: Context, tools: Sequence[Tool]) -> None:
        self._context = context
        self._tools = {tool.name: tool for tool in tools if tool.gate != "free"}
        self._running = dict[str, asyncio.Task[None]]()
        self._asked = asyncio.Event()

    @property
    def loops(self) -> Sequence[Loop]:
        """The loop, if there is any gated tool."""
        return [self.run] if self._tools else []

    def over(self, tool: Tool) -> Tool:
        """Return the tool as its callers get it: one that is gated asks first."""
        if tool.gate == "free":
            return tool

        async def handler(call: ToolCall) -> Result:
            return Result(await self._ask(tool, call))

        # What it answers is how the call stands, which is not of the tool's own form.
        return replace(tool, handler=handler, output=None, description=f"{tool.description} {NEEDS}")

    async def _ask(self, tool: Tool, call: ToolCall) -> Answer:
        demand_fitting(tool, call.arguments)
        new = NewCall(
            id=self._context.new_id(),
            origin=self._context.name,
            tool_name=tool.name,
            arguments=tool_call.exact(call.arguments),
            says=sentence(tool, call.arguments),
            risk=tool.risk,
            repeatable=tool.repeatable,
            session=call.caller.session,
        )
        decision, row = await self._admit(tool, new)
        if row is None:
            return answers.call_refused(decision.text)
        again = row["id"] != new.id
        if row["status"] in UNDER_WAY and not again:
            self._asked.set()
            row = await self._outcome(row)
        stands = answers.call_stands(dict(row))
        return {**stands, "duplicate": True} if again else stands

    async def _admit(self, tool: Tool, new: NewCall) -> tuple[Decision, Record | None]:
        """Ask the gate, again where another call came at the same moment."""
        context, declared = self._context, Declared(tool.gate, tool.risk)
        for n in range(TRIES):
            try:
                async with context.db.work(BRIEFLY) as connection:
                    return await tool_call.admit_call(connection, new, declared, context.settings.approval_ttl)
            except Locked:
                # Whoever holds it may hold it for long, and a call that tries again holds a connection.
                raise
            except Unavailable:
                if n == TRIES - 1 or context.stopping.is_set():
                    raise
        raise Unavailable("The call could not be admitted.", "Try again.")

    async def _outcome(self, row: Record) -> Record:
        """Wait until a call that a rule let through has ended, as long as a message would be waited for."""
        timings = self._context.settings.timings
        deadline = time.monotonic() + timings.butler_wait
        while row["status"] in UNDER_WAY and time.monotonic() < deadline and not self._context.stopping.is_set():
            ticket = self._context.wakes["cards"].ticket()
            async with self._context.db.work() as connection:
                row = await tool_calls.one(connection, row["id"]) or row
            if row["status"] in UNDER_WAY:
                await pause(ticket, min(timings.outcome_again, 0.1))
        return row

    async def run(self, stopping: asyncio.Event) -> None:
        """Run what was let through, several at a time, again and again until stopping; then end what is in hand."""
        try:
            while not stopping.is_set():
                ticket = self._context.wakes["released"].ticket()
                self._asked.clear()
                try:
                    await self._begin_due()
                except ButlersError as lost:
                    log.warning("what may run was not looked at", why=lost.message)
                await either(self._context.settings.sweep_seconds, ticket, self._asked, stopping)
            if self._running:
                await asyncio.wait(self._running.values())
        finally:
            # What is cut off here ends as `uncertain`, by its lease.
            for task in self._running.values():
                task.cancel()

    async def _begin_due(self) -> None:
        async with self._context.db.work() as connection:
            due = await tool_calls.due_calls(connection, self._context.name, RUN_WITHIN)
        for row in due:
            if row["tool_name"] in self._tools and row["id"] not in self._running and len(self._running) < AT_ONCE:
                task = asyncio.ensure_future(self._run_one(row["id"], self._tools[row["tool_name"]]))
                self._running[row["id"]] = task
                task.add_done_callback(lambda _, one=row["id"]: self._running.pop(one, None))  # type: ignore[misc]

    async def _run_one(self, call_id: str, tool: Tool) -> None:
        context, declared = self._context, Declared(tool.gate, tool.risk)
        try:
            async with context.db.work() as connection:
                begun = await tool_call.begin_call(
                    connection, call_id, declared, context.instance, context.settings.timings.lease
                )
        except ButlersError as lost:
            log.warning("a call was not begun", call=call_id, why=lost.message)
            return
        if begun is None:
            return
        renewing = asyncio.ensure_future(self._renew(begun))
        try:
            came = await outcome(tool, begun, context.name)
            await self._finish(begun, came)
        finally:
            renewing.cancel()
            # Another may wait for its place. What could not begin, as under a brake, is looked at by the next tick.
            self._asked.set()

    async def _renew(self, begun: Begun) -> None:
        timings, instance = self._context.settings.timings, self._context.instance
        while True:
            await asyncio.sleep(timings.renew)
            try:
                async with self._context.db.work() as connection:
                    await tool_calls.renew_call(connection, begun.id, instance, begun.attempt, timings.lease)
            except ButlersError as lost:
                log.warning("a lease was not renewed", call=begun.id, why=lost.message)

    async def _finish(self, begun: Begun, came: tuple[str, str]) -> None:
        """Write down what came of it, as soon as the database takes it: nobody else knows.

        What it will not take is given up, and the call ends as `uncertain`, by its lease.
        """
        context, refused = self._context, 0
        while refused < MOST_REFUSALS:
            try:
                async with context.db.work() as connection:
                    await tool_call.finish_call(connection, context.name, begun, context.instance, came)
            except ButlersError as lost:
                refused += not isinstance(lost, Unavailable)
                log.warning("the outcome of a call is not written yet", call=begun.id, why=lost.message)
                await asyncio.sleep(1)
            else:
                return
        log.error("the outcome of a call is given up", call=begun.id, state=came[0])


def demand_fitting(tool: Tool, arguments: Arguments) -> None:
    """Raise InvalidInput for arguments that the tool's schema does not allow.

    INVARIANT: a rule compares texts, so that what is of another type must never come to it: the text "false" is true to
    a tool that expects a truth value.
    """
    if (wrong := misfit(tool, arguments)) is not None:
        raise InvalidInput(
            f"`{tool.name}` cannot take these arguments: {wrong}.",
            "Follow the tool's schema; nothing was asked or done.",
        )


def sentence(tool: Tool, arguments: Arguments) -> str:
    """Return what the tool says that it would do; raise InvalidInput if it cannot say it in a sentence."""
    try:
        said = tool.says(arguments) if tool.says is not None else ""
    except ButlersError:
        raise
    except (Exception, SystemExit):
        log.exception("a tool cannot say what it would do", tool=tool.name)
        said = ""
    said = str(said)
    if not said.strip() or len(said) > tool_call.LONGEST_SENTENCE or "\0" in said:
        raise InvalidInput(
            f"`{tool.name}` cannot say what it would do with these arguments.", "Check them; nothing was asked or done."
        )
    return tool_call.whole(said)


async def outcome(tool: Tool, begun: Begun, butler: str) -> tuple[str, str]:
    """Run the tool once, and return how it ended and what is kept of its result."""
    caller = Caller(butler, "session" if begun.session else "client", begun.session or begun.id)
    try:
        result = await tool.handler(ToolCall(caller, begun.arguments))
    except ButlersError as failed:
        return "failed", kept({"error": str(failed)})
    except Exception as bug:
        log.exception("a gated tool broke", tool=tool.name, call=begun.id)
        return "failed", kept({"error": f"It broke ({type(bug).__name__}); the log says where."})
    texts = [str(text) for block in result.blocks if (text := getattr(block, "text", None)) is not None]
    if result.is_error or result.asks:
        return "failed", kept({"error": " ".join(texts) or "It ended with an error.", "result": result.answer})
    return "executed", kept({"result": result.answer, "texts": texts})


def kept(came: Mapping[str, object]) -> str:
    """Return what is kept of a result, as JSON without half a character; of one that is too long, that it is."""
    given = {name: value for name, value in came.items() if value not in (None, [], "")}
    text = storable(json.dumps(given, default=str, ensure_ascii=False))
    if len(text) <= LONGEST_RESULT:
        return text
    return json.dumps({"error": TOO_LONG} if "error" in came else {"texts": [TOO_LONG]})
