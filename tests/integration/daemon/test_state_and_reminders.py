"""The modules `state` and `schedule` over real rows, and whom a butler may call."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from butlers.butler import Answer, NoConfig, ToolCall
from butlers.modules import schedule, state
from shared.auth.tokens import Caller
from shared.channels.email import SPEC as EMAIL
from shared.channels.realms import SANDBOX
from shared.errors import InvalidInput
from tests.integration.house import House

OWNERS_MAIL = "UPDATE shared.contact_info SET value = $2 WHERE type = 'email' AND value = $1"
REALM = "UPDATE shared.channels SET realm = $1 WHERE channel = 'email'"

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def use(house: House, tool: str, butler: str = "health", /, **arguments: object) -> Answer:
    """What a tool of the two modules answers this butler."""
    common = house.context(butler)
    context = replace(common, tools=dict(common.tools))
    parts = [module.build(context, NoConfig()) for module in (state.MODULE, schedule.MODULE)]
    context.tools.update({one.name: one for part in parts for one in part.tools})
    return (await context.tools[tool].handler(ToolCall(Caller(butler, "client", "j"), arguments))).answer or {}


async def refusal(house: House, tool: str, /, **arguments: object) -> str:
    with pytest.raises(InvalidInput) as refused:
        await use(house, tool, "health", **arguments)
    assert refused.value.remedy
    return refused.value.message


async def version_of(house: House, key: str, value: object, **only_if: object) -> int:
    """Set a key; return its version then."""
    version = (await use(house, "state_set", key=key, value=value, **only_if))["version"]
    assert isinstance(version, int)
    return version


async def test_a_value_is_kept_by_key_and_each_butler_has_its_own(still_house: House) -> None:
    assert await use(still_house, "state_get", key="diary") == {"key": "diary", "version": 0, "value": None}
    versions = [0]
    for value in ({"a": [1, "ä"]}, "text", 7.5, False):
        versions.append(await version_of(still_house, "diary", value))
        read = await use(still_house, "state_get", key="diary")
        assert (read["value"], read["version"]) == (value, versions[-1])
    *_, before, now = versions
    assert versions == sorted(set(versions))
    assert (await use(still_house, "state_get", "greeter", key="diary"))["version"] == 0
    assert await use(still_house, "state_list", prefix="di") == {"keys": [{"key": "diary", "version": now}]}
    assert await use(still_house, "state_list", prefix="_i") == {"keys": []}
    assert await refusal(still_house, "state_delete", key="diary", version=before) == (
        f"`diary` has version {now} and not {before}, so nothing was changed."
    )
    assert (await use(still_house, "state_delete", key="diary", version=now))["deleted"] is True
    assert (await use(still_house, "state_delete", key="diary"))["deleted"] is False


async def test_what_was_deleted_and_set_anew_is_not_overwritten_by_whoever_read_it_before(still_house: House) -> None:
    read = await version_of(still_house, "errands", ["milk"])
    await use(still_house, "state_delete", key="errands", version=read)
    anew = await version_of(still_house, "errands", ["call the doctor"], version=0)
    late: dict[str, object] = {"key": "errands", "value": ["milk", "eggs"], "version": read}
    assert await refusal(still_house, "state_set", **late) == (
        f"`errands` has version {anew} and not {read}, so nothing was changed."
    )
    assert (await use(still_house, "state_get", key="errands"))["value"] == ["call the doctor"]


async def test_of_two_who_read_the_same_version_one_alone_sets(still_house: House) -> None:
    async def add(n: int) -> None:
        while True:
            read = await use(still_house, "state_get", key="list")
            before = read["value"] or []
            assert isinstance(before, list)
            try:
                await use(still_house, "state_set", key="list", value=[*before, n], version=read["version"])
            except InvalidInput:
                continue
            return

    await asyncio.gather(*(add(n) for n in range(20)))
    value = (await use(still_house, "state_get", key="list"))["value"]
    assert isinstance(value, list)
    assert sorted(value) == list(range(20))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"key": "", "value": 1}, "`key` is not a text of 1 to 200 characters."),
        ({"key": "a\x00", "value": 1}, "`key` is not a text of 1 to 200 characters."),
        ({"key": "a"}, "`value` is missing or null."),
        ({"key": "a", "value": "x" * 60_001}, "`value` is 60,003 characters long."),
        ({"key": "a", "value": {"b": "\x00"}}, "`value` contains a NUL or an incomplete Unicode character."),
        ({"key": "a", "value": "\ud800"}, "`value` contains a NUL or an incomplete Unicode character."),
        ({"key": "a", "value": 1, "version": "1"}, "`version` is not a whole number."),
        ({"key": "a", "value": 1, "version": 5}, "`a` has version 0 and not 5, so nothing was changed."),
    ],
)
async def test_what_cannot_be_kept_is_refused(still_house: House, arguments: Mapping[str, object], said: str) -> None:
    assert await refusal(still_house, "state_set", **arguments) == said


@pytest.mark.parametrize("letter", ["a", "д", "日", "😀"])
async def test_as_much_is_kept_in_any_script(still_house: House, letter: str) -> None:
    long = [letter * 19_900, *[1] * 20_000]
    await use(still_house, "state_set", key="long", value=long)
    assert (await use(still_house, "state_get", key="long"))["value"] == long
    given: dict[str, object] = {"key": "long", "value": letter * 59_900}
    await use(still_house, "schedule_add", name="long", cron="0 7 * * *", tool="state_set", arguments=given)
    found = (await use(still_house, "schedule_list"))["schedules"]
    assert isinstance(found, list)
    assert [one["arguments"] for one in found if one["name"] == "long"] == [given]
    await use(still_house, "schedule_remove", name="long")


async def test_the_owner_is_reminded_and_a_butler_removes_only_its_own(still_house: House) -> None:
    house = still_house
    told = await use(house, "remind_me", **{"text": "Call Anna.", "in": "20m"})
    rows = await use(house, "schedule_list")
    assert isinstance(rows["schedules"], list)
    (row,) = [one for one in rows["schedules"] if one["name"] == told["name"]]
    assert (row["tool"], row["arguments"]) == ("notify", {"channel": "telegram", "message": "Call Anna."})
    soon = await house.row(
        "SELECT next_due_at BETWEEN now() + '19m' AND now() + '21m' AS soon FROM shared.schedules WHERE name = $1",
        told["name"],
    )
    assert soon["soon"]
    assert (await use(house, "schedule_remove", "greeter", name=told["name"]))["removed"] is False
    assert (await use(house, "schedule_remove", name=told["name"]))["removed"] is True
    named = {"name": "walk", "cron": "0 18 * * *", "prompt": "Time to walk?"}
    await use(house, "schedule_add", **named)
    assert await refusal(house, "schedule_add", **named) == "You have a schedule `walk` already."
    await house.sql.execute("UPDATE shared.schedules SET source = 'file' WHERE name = 'walk'")
    assert await refusal(house, "schedule_remove", name="walk") == "`walk` is the owner's, in butler.toml."


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("mcp__health__notify", {}, "The butler has no tool `mcp__health__notify`."),
        ("route.execute", {}, "The butler has no tool `route.execute`."),
        (
            "notify",
            {"message": "x"},
            "`arguments`: the tool `notify` cannot take them: 'channel' is a required property.",
        ),
        ("notify", {"channel": "telegram", "text": "x"}, "`arguments`: the tool `notify` has no `text`."),
    ],
)
async def test_a_schedule_whose_call_no_tool_takes_is_refused(
    still_house: House, tool: str, arguments: Mapping[str, object], said: str
) -> None:
    soon = {"name": "dentist", "cron": "0 9 * * *", "tool": tool, "arguments": arguments}
    assert await refusal(still_house, "schedule_add", **soon) == said


async def test_a_reminder_without_a_channel_goes_where_the_owner_is_really_told(still_house: House) -> None:
    asked = {"text": "Take the pills.", "in": "20m"}
    await still_house.sql.execute(REALM, "butlers@mail.test")
    await still_house.sql.execute(OWNERS_MAIL, EMAIL.sandbox_owner, "owner@people.test")
    try:
        told = await use(still_house, "remind_me", **asked)
        played = await use(still_house, "remind_me", **asked, channel="telegram")
    finally:
        await still_house.sql.execute(REALM, SANDBOX)
        await still_house.sql.execute(OWNERS_MAIL, "owner@people.test", EMAIL.sandbox_owner)
    rows = (await use(still_house, "schedule_list"))["schedules"]
    assert isinstance(rows, list)
    by = {one["name"]: one["arguments"]["channel"] for one in rows if one["name"].startswith("reminder-")}
    assert (by[told["name"]], told.get("note")) == ("email", None)
    assert by[played["name"]] == "telegram"
    assert played["note"] == (
        "Telegram is the sandbox, where the owner will not see this: remove it, and use a channel that is live."
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"in": "20m"}, "`text` is missing."),
        ({"text": "x"}, "A reminder says when by one of `at`, `in` and `cron`."),
        ({"text": "x", "in": "20m", "cron": "0 9 * * *"}, "A reminder says when by one of `at`, `in` and `cron`."),
        ({"text": "x", "in": "soon"}, "`in` is no span of time up to ten years."),
        ({"text": "x", "in": "9" * 400 + "d"}, "`in` is no span of time up to ten years."),
        ({"text": "x" * 10_001, "in": "20m"}, "Parameter 'message' has 10001 characters; at most 10000 are allowed."),
        ({"text": "x", "in": "20m", "channel": "fax"}, "`channel` is not one of telegram, email."),
    ],
)
async def test_a_reminder_that_cannot_be_is_refused(
    still_house: House, arguments: Mapping[str, object], said: str
) -> None:
    assert await refusal(still_house, "remind_me", **arguments) == said


@pytest.mark.parametrize("tool", ["remind_me", "schedule_add"])
async def test_a_time_that_is_over_is_refused_and_one_that_has_just_come_is_not(still_house: House, tool: str) -> None:
    what = {"text": "The dentist."} if tool == "remind_me" else {"name": "dentist", "prompt": "The dentist."}
    now = await still_house.sql.fetchval("SELECT clock_timestamp()")
    over = {**what, "at": (now - timedelta(days=365)).isoformat()}
    assert await refusal(still_house, tool, **over) == "`at` is over."
    told = await use(still_house, tool, **{**over, "at": (now - timedelta(seconds=5)).isoformat()})
    assert (await use(still_house, "schedule_remove", name=told["name"]))["removed"] is True


async def test_a_list_of_schedules_ends_long_prompts(still_house: House) -> None:
    for name, prompt in (("long", "x" * 501), ("short", "y" * 500)):
        await use(still_house, "schedule_add", name=name, prompt=prompt, cron="0 7 * * *", zone="UTC")
    found = (await use(still_house, "schedule_list"))["schedules"]
    assert isinstance(found, list)
    shown = {one["name"]: one["prompt"] for one in found if one["name"] in {"long", "short"}}
    assert shown == {"long": f"{'x' * 500}…", "short": "y" * 500}
