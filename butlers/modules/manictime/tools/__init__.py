"""The fourteen tools of the timekeeper."""

from collections.abc import Callable
from dataclasses import replace

from butlers.butler import Result, Tool, ToolCall
from butlers.modules.manictime.answers import Given, Told
from butlers.modules.manictime.source import Snapshot
from butlers.modules.manictime.tools.saving import SAVE, save_screenshot, would_save
from butlers.modules.manictime.tools.screenshots import (
    CROP,
    GET,
    LIST,
    Desk,
    crop_screenshot,
    get_screenshot,
    list_screenshots,
)
from butlers.modules.manictime.tools.summaries import SUMMARIES
from butlers.modules.manictime.tools.timelines import LISTS, Ask


def tools_of(desk: Desk) -> list[Tool]:
    """Return the tools, those that read the database first."""

    def made(told: Told, answer: Callable[[Ask], dict[str, object]]) -> Tool:
        async def work(given: Given, _: ToolCall) -> Result:
            def read(snapshot: Snapshot) -> dict[str, object]:
                return answer(Ask(snapshot, given, desk.zone, desk.pictures))

            return Result(await desk.source.read(read))

        return told.tool(work)

    async def listed(given: Given, _: ToolCall) -> Result:
        return await list_screenshots(desk, given)

    async def shown(given: Given, _: ToolCall) -> Result:
        return await get_screenshot(desk, given)

    async def cropped(given: Given, _: ToolCall) -> Result:
        return await crop_screenshot(desk, given)

    async def saved(given: Given, call: ToolCall) -> Result:
        return await save_screenshot(desk, given, call)

    saving = replace(SAVE.tool(saved), gate=desk.gate, says=lambda arguments: would_save(desk, arguments))
    of_pictures = [LIST.tool(listed), GET.tool(shown), CROP.tool(cropped), saving]
    return [made(told, answer) for told, answer in (*LISTS, *SUMMARIES)] + of_pictures
