"""The prompts of the timekeeper: texts that lead a model to the right tools."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final
from zoneinfo import ZoneInfo

from butlers.butler import Prompt, ToolCall
from butlers.modules.manictime.days import MOMENT, MOST_DAYS, date_of, iso_text, local_of, range_of
from shared.errors import InvalidInput

# So far around a moment screenshots are looked for.
AROUND_SECONDS: Final = 300
RESOLVED: Final = "Show the user names and local times; keep screenshotRef and other ids for your own calls."


def daily_review(call: ToolCall, _: ZoneInfo | None) -> str:
    """Return the text for one day."""
    day = date_of(call.arguments.get("date"), "date")
    return (
        f"Call get_activity_narrative with startDate={day}, endDate={day + timedelta(days=1)} and includeSummary=true."
        " Write a concise review of the day: total active time, top applications and websites, and patterns worth"
        f" noting. {RESOLVED} If there are suggestedScreenshots, you may look at the best by get_screenshot, cut the"
        " part that matters with crop_screenshot, and keep it with save_screenshot."
    )


def weekly_review(call: ToolCall, zone: ZoneInfo | None) -> str:
    """Return the text for several days."""
    start, end = (date_of(call.arguments.get(name), name) for name in ("startDate", "endDate"))
    range_of(str(start), str(end), zone, MOST_DAYS)
    return (
        f"Call get_period_summary with startDate={start} and endDate={end}; the end is exclusive."
        " Write an overview: total hours, busiest and quietest day, top applications and websites, and how the days of"
        f" the week differ. {RESOLVED} For a day that stands out, call get_daily_summary; get_screenshot,"
        " crop_screenshot and save_screenshot may show what it was about."
    )


def screenshot_investigation(call: ToolCall, zone: ZoneInfo | None) -> str:
    """Return the text for one moment."""
    said = call.arguments.get("datetime")
    if not isinstance(said, str) or not MOMENT.fullmatch(said):
        raise InvalidInput(
            "Invalid date format. Expected an ISO-8601 moment in `datetime`.",
            "Write for example 2026-03-14T16:00:00.",
            code="invalid_date",
        )
    moment = local_of(said, zone, "datetime")
    start, end = iso_text(moment - AROUND_SECONDS), iso_text(moment + AROUND_SECONDS)
    return (
        f"Find out what the user was doing at {iso_text(moment)}. Call list_screenshots with startDate={start} and"
        f" endDate={end}, that is within 5 minutes. Look at the nearest by get_screenshot; you see its thumbnail. Where"
        " you need to read more, call crop_screenshot with a box in percent. Call get_activity_narrative with the same"
        f" startDate={start} and endDate={end}, and explain both together. {RESOLVED} If there is no screenshot, say"
        " why, by reasonCode and remediationHint."
    )


def prompts_of(zone: ZoneInfo | None) -> list[Prompt]:
    """Return the three prompts."""

    def made(name: str, says: str, takes: dict[str, str], text: Callable[[ToolCall, ZoneInfo | None], str]) -> Prompt:
        async def render(call: ToolCall) -> str:
            return text(call, zone)

        return Prompt(name, says, takes, render)

    day = "A date (ISO-8601)."
    return [
        made("daily_review", "Review one day.", {"date": day}, daily_review),
        made(
            "weekly_review",
            "Review a week, or up to 31 days.",
            {"startDate": day, "endDate": "The date after the last (ISO-8601)."},
            weekly_review,
        ),
        made(
            "screenshot_investigation",
            "Find out what was done at a moment.",
            {"datetime": "The moment (ISO-8601)."},
            screenshot_investigation,
        ),
    ]
