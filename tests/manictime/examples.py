"""One example per tool, resource and prompt, from the made-up record: `python -m tests.manictime.examples` writes them.

They stand in docs/manictime.md below its mark.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from butlers.butler import ToolCall
from butlers.modules.manictime import components
from butlers.modules.manictime.fixture import make
from butlers.modules.manictime.tools.screenshots import Desk
from tests.manictime.desks import CALLER, desk_over, result

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "manictime.md"
MARK: Final = "<!-- What follows is made by tests/manictime/examples.py. -->\n"
DAY: Final = {"startDate": "2025-01-20", "endDate": "2025-01-21"}
FEW: Final = {**DAY, "limit": 1}
CALLS: Final[Mapping[str, Mapping[str, object]]] = {
    "get_timelines": {},
    "get_activities": {"timelineId": 3, **FEW},
    "get_computer_usage": FEW,
    "get_tags": FEW,
    "get_application_usage": FEW,
    "get_document_usage": FEW,
    "get_daily_summary": {"date": "2025-01-20", "maxSegments": 1},
    "get_activity_narrative": {**DAY, "maxSegments": 2},
    "get_period_summary": {"startDate": "2025-01-20", "endDate": "2025-01-22"},
    "get_website_usage": {**FEW, "minMinutes": 10},
    "list_screenshots": {**DAY, "maxCount": 1},
    "get_screenshot": {},
    "crop_screenshot": {"x": 50, "y": 50, "width": 25, "height": 25},
    "save_screenshot": {"outputPath": "assets/morning"},
}
PROMPTS: Final = {
    "daily_review": {"date": "2025-01-20"},
    "weekly_review": {"startDate": "2025-01-13", "endDate": "2025-01-20"},
    "screenshot_investigation": {"datetime": "2025-01-20T10:00:00"},
}


async def examples(folder: Path) -> str:
    """All of them, as Markdown; the folder of the record is called DIR."""
    make(folder, "A", 10)
    desk = desk_over(folder, roots=[folder / "saved"])
    parts = [*await of_tools(desk), *await of_resources(desk), *await of_prompts(desk)]
    return "\n".join(parts).replace(str(folder), "DIR")


def block(value: object, kind: str = "json") -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return f"```{kind}\n{text}\n```\n"


async def of_tools(desk: Desk) -> list[str]:
    found = await result(desk, "list_screenshots", **CALLS["list_screenshots"])
    assert found.answer is not None
    ref = found.answer["screenshots"][0]["screenshotRef"]  # type: ignore[index]  # a list of screenshots
    made = []
    for name, said in CALLS.items():
        refs = {"screenshotRef": ref} if name.endswith("t_screenshot") or name[:4] in {"crop", "save"} else {}
        given: dict[str, Any] = {**refs, **said}
        answer = await result(desk, name, **given)
        more = ", ".join(one.type for one in answer.blocks)
        made += [f"### {name}\n", block(given), block(dict(answer.answer or {}))]
        made += [f"Beside it: {more}.\n"] if more else []
    return made


async def of_resources(desk: Desk) -> list[str]:
    made = []
    for one in components(desk).resources:
        if "{" in one.uri or one.mime_type != "application/json":
            continue
        [(_, text)] = await one.read(ToolCall(CALLER, {}))
        made += [f"### {one.uri}\n", block(json.loads(text))]
    return [
        *made,
        "### manictime://guide\n",
        "The text of `butlers/modules/manictime/guide.md`, for models.\n",
        "### manictime://screenshot/{screenshotRef}\n",
        "The thumbnail as `image/jpeg`, then what `get_screenshot` says of it as `application/json`.\n",
    ]


async def of_prompts(desk: Desk) -> list[str]:
    made = []
    for one in components(desk).prompts:
        text = await one.render(ToolCall(CALLER, PROMPTS[one.name]))
        made += [f"### {one.name}\n", block(PROMPTS[one.name]), block(text, "text")]
    return made


def main() -> int:
    """Write them below the mark."""
    with tempfile.TemporaryDirectory() as folder:
        told = asyncio.run(examples(Path(folder)))
    head, _, _ = DOCUMENT.read_text(encoding="utf-8").partition(MARK)
    DOCUMENT.write_text(f"{head}{MARK}\n{told}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
