"""The timekeeper: what the owner did at the computer, from ManicTime's record, as tools, resources and prompts."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, field_validator

from butlers.butler import Components, Context, Module
from butlers.modules.manictime.pictures import Pictures
from butlers.modules.manictime.prompts import prompts_of
from butlers.modules.manictime.resources import resources_of
from butlers.modules.manictime.source import NoData, Snapshot, Source, locate
from butlers.modules.manictime.tools import tools_of
from butlers.modules.manictime.tools.recall import recall_over
from butlers.modules.manictime.tools.screenshots import Desk
from shared.display.day_bar import KEY, DayBar
from shared.model import Gate
from shared.storage import state


class ManicTime(BaseModel):
    """What butler.toml may tell it."""

    model_config = ConfigDict(extra="forbid")
    data: Path | None = Field(None, description="The folder with ManicTimeReports.db, or that file.")
    screenshots: Path | None = Field(None, description="The folder of the screenshots.")
    roots: list[Path] = Field([], description="The folders into which screenshots may be saved.")
    full_image: Literal["inline", "link"] = Field("inline", description="How a whole screenshot is answered.")
    gate: Gate = Field(
        "free",
        description="Whether a screenshot is saved at once, by a rule or your yes, or by that yes alone.",
    )
    timezone: str | None = Field(None, description="The zone of the recorded clock, where it is not this computer's.")

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name is not None:
            try:
                ZoneInfo(name)
            except (KeyError, OSError, ValueError):
                raise ValueError("it is no time zone that is known") from None
        return name


def desk_of(config: ManicTime) -> Desk:
    """Return what the tools work with."""
    place = locate(config.data, config.screenshots)
    zone = ZoneInfo(config.timezone) if config.timezone else None
    return Desk(Source(place), Pictures(place.screenshots), zone, config.full_image, config.roots, config.gate)


def components(desk: Desk) -> Components:
    """Return tools, resources and prompts. A database that cannot be read is a remark and no trouble."""

    async def look() -> None:
        try:
            await asyncio.shield(desk.source.read(_nothing))
        except NoData:
            return  # its tools say so, and /readyz remarks it

    return Components(
        tools=tools_of(desk),
        resources=resources_of(desk),
        prompts=prompts_of(desk.zone),
        remarks=lambda: [f"The timekeeper: {desk.source.trouble}"] if desk.source.trouble else [],
        start=look,
    )


def _nothing(_: Snapshot) -> None:
    """Read nothing but what the file is."""


def build(context: Context, config: ManicTime) -> Components:
    """Return what the module adds to a butler; the bar of a day that it tells is kept for the butler's page."""
    desk = desk_of(config)

    async def keep(bar: DayBar) -> None:
        async with context.db.work() as connection:
            await state.put(connection, context.name, KEY, bar.kept, None)

    made = components(desk)
    return replace(made, tools=[*made.tools, recall_over(desk, keep, time.time)])


MODULE = Module("manictime", build, ManicTime)
