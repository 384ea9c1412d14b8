"""Every runtime plays the same story with a real butler over HTTP."""

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from butlers.runtime.agent import CHILD
from butlers.runtime.base import Called, Ended, Event, Limits, Said, Used
from butlers.runtime.registry import RUNTIMES
from tests.integration.runtime.small_butler import FORGED, KEYS, NOTICE, PERSONA, TOKEN, SmallButler
from tests.integration.runtime.story import CHAT, COMMAND, LAST, MESSAGES, SCRIPT, TOLD, Player
from tests.rig.model_server import INPUT, Call, Fault, ModelServer, Words
from tests.rig.waiting import until

# An agent's libraries take seconds to import.
MODELS = [
    pytest.param(MESSAGES, id="agent, Messages", marks=pytest.mark.slow),
    pytest.param(CHAT, id="agent, Chat Completions", marks=pytest.mark.slow),
]
PLAYERS = [pytest.param(SCRIPT, id="script"), pytest.param(COMMAND, id="command"), *MODELS]
TURNS = Limits(turns=3)


async def played(
    player: Player, butler: SmallButler, models: ModelServer, folder: Path, limits: Limits = TURNS
) -> list[Event]:
    """All that the runtime tells of one job."""
    runtime = RUNTIMES[player.runtime]
    job = butler.job(folder, runtime.config.model_validate(player.table), limits, **player.environment(models))
    assert runtime.missing(job.settings, job.environment) is None
    async with asyncio.timeout(120):
        events = [event async for event in runtime.run(job, asyncio.Event())]
    assert [event for event in events if isinstance(event, Ended)] == events[-1:]
    assert not [secret for secret in (TOKEN, *KEYS.values()) if secret in str(events)]
    return events


async def the_story(player: Player, butler: SmallButler, models: ModelServer, folder: Path) -> None:
    """Play it; the butler was called, and the model read what the butler answered."""
    models.play(*player.answers())
    events = await played(player, butler, models, folder)
    assert events[-1] == Ended("done", LAST)
    assert Said(LAST) in events
    assert butler.told == [TOLD]
    if player.runtime != "command":
        assert [event.tool for event in events if isinstance(event, Called)] == ["beds", "notify"]
    if player.path is None:
        return
    *_, used = [event for event in events if isinstance(event, Used)]
    assert (used.turns, used.tokens) == (3, 360)
    assert used.dollars > 0
    _, _, last = models.asked
    assert last.key == KEYS[player.key]
    names = ("archive", "beds", "broken", "contract", "notify")
    assert sorted(last.tools) == [f"{player.prefix}{name}" for name in names]
    assert last.system.endswith(PERSONA)
    assert last.said[0].endswith("How are the beds?")
    assert last.results == ['{"count":3}', '{"status":"ok"}']


@pytest.mark.parametrize("player", PLAYERS)
async def test_it_reads_a_tool_tells_the_owner_and_ends(
    player: Player, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    await the_story(player, butler, models, tmp_path)


@pytest.mark.parametrize("player", MODELS)
async def test_a_notice_is_read_where_the_result_is(
    player: Player, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    butler.notices = [NOTICE]
    models.play(Call("beds"), Words(LAST))
    await played(player, butler, models, tmp_path)
    [read] = models.asked[-1].results
    assert json.loads(read) == {"count": 3, "notifications": NOTICE}


@pytest.mark.parametrize("player", MODELS)
async def test_a_notice_is_an_event_of_its_own_where_the_table_says_so_and_a_forged_one_is_not(
    player: Player, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    butler.notices = [NOTICE, FORGED]
    apart = replace(player, table={**player.table, "notices": "synthetic"})
    models.play(Call("beds"), Call("beds"), Words(LAST))
    await played(apart, butler, models, tmp_path)
    first, block, second = models.asked[-1].results
    assert (json.loads(first), block) == ({"count": 3}, NOTICE)
    assert json.loads(second) == {"count": 3, "notifications": FORGED}
    assert "_system_notification" in str(models.asked[-1].body)
    assert "_system_notification" not in models.asked[-1].tools
    assert "notif_" in str(models.asked[-1].body)


@pytest.mark.parametrize("player", MODELS)
async def test_a_file_that_no_model_takes_and_an_end_without_words_fail_no_session(
    player: Player, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    models.play(Words(""), Call("archive"), Words(""))  # at first it has done nothing, and is asked again
    *_, end = await played(player, butler, models, tmp_path)
    assert end == Ended("done", "")
    assert "A file of the type application/zip, which cannot be read here." in str(models.asked[-1].body)
    assert len(models.asked) == 3


FAULTS: list[tuple[Player, Fault, str]] = [
    (MESSAGES, "529", "The model's server refused the request (529)."),
    (CHAT, "429", "The model's server refused the request (429)."),
    (CHAT, "cut", "The model's session failed: Connection error."),
    (MESSAGES, "nonsense", "The model's session failed: "),
]


@pytest.mark.slow
@pytest.mark.parametrize("player", MODELS)
async def test_a_model_that_names_an_unknown_tool_again_and_again_may_go_on(
    player: Player, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    models.play(Call("bets"), Call("bets"), Call("bets"), Call("beds"), Words("Three."))
    *_, end = await played(player, butler, models, tmp_path, Limits())
    assert end == Ended("done", "Three.")


@pytest.mark.parametrize(("player", "fault", "says"), FAULTS, ids=lambda value: str(value)[:30])
async def test_a_model_that_fails_ends_the_session_with_a_sentence(
    player: Player, fault: Fault, says: str, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    models.play(Call("beds"), fault)
    *_, end = await played(player, butler, models, tmp_path)
    assert isinstance(end, Ended)
    assert (end.outcome, end.text[: len(says)]) == ("failed", says)
    assert "\n" not in end.text


@pytest.mark.slow
async def test_a_model_that_is_slow_is_ended_by_the_minutes_and_its_process_holds_its_own_key_alone(
    butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    models.play("slow")
    playing = asyncio.create_task(played(MESSAGES, butler, models, tmp_path, Limits(minutes=0.5)))
    await until(lambda: models.asked)
    [process] = thinking()
    variables = {one.partition(b"=")[0].decode() for one in read(process / "environ").split(b"\0") if one}
    own = {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"}
    assert variables - {"PWD"} == {"PATH", "HOME", "TMPDIR", "LANG"} | own
    assert not [secret for secret in (TOKEN, *KEYS.values()) if secret.encode() in read(process / "cmdline")]
    assert await playing == [Ended("limit", "The session took longer than 0.5 minutes.")]


def thinking() -> list[Path]:
    """The processes for which a model thinks."""
    words = b"\0".join((sys.executable.encode(), b"-I", str(CHILD).encode()))
    return [one for one in Path("/proc").glob("[0-9]*") if read(one / "cmdline").startswith(words)]


def read(file: Path) -> bytes:
    """What a process shows there, if it is one of ours and still there."""
    with suppress(OSError):
        return file.read_bytes()
    return b""


@pytest.mark.slow
async def test_a_model_that_asks_for_a_tool_that_is_not_there_is_told_so(
    butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    models.play(Call("burn"), Words("There is none."))
    *_, end = await played(CHAT, butler, models, tmp_path)
    assert end == Ended("done", "There is none.")
    [result] = models.asked[-1].results
    assert "burn" in result


@pytest.mark.parametrize(
    ("limits", "says", "asked"),
    [
        (Limits(turns=2), "2 turns", 2),
        (Limits(tokens=200), "200 tokens", 2),
        (Limits(dollars=0.0000001), "1e-07 dollars", 1),
    ],
)
@pytest.mark.slow
async def test_no_further_request_is_made_at_a_limit(
    limits: Limits, says: str, asked: int, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    models.play(Call("beds"))
    *_, used, end = await played(MESSAGES, butler, models, tmp_path, limits)
    assert end == Ended("limit", f"The session reached its limit of {says}.")
    assert len(models.asked) == asked
    assert isinstance(used, Used)
    assert used.turns == asked
    assert used.tokens > INPUT * asked
    assert used.dollars > 0.0003 * asked  # what these cost by the list of prices


@pytest.mark.parametrize(
    ("steps", "end"),
    [
        ([{"call": "beds"}] * 4, Ended("limit", "The session reached its limit of 3 turns.")),
        ([{"call": "burn"}], Ended("failed", "`burn` failed: Unknown tool: 'burn'")),
        ([{"call": "broken"}], Ended("failed", "`broken` failed: Error calling tool 'broken': The tap is closed.")),
        (
            [{"say": "${beds.count}"}],
            Ended("failed", "The script names `${beds.count}`, and no earlier answer has that."),
        ),
        ([{"call": "beds", "keep": "b"}, {"say": "${b}, ${prompt}"}], Ended("done", '{"count": 3}, How are the beds?')),
        ([{"call": "beds"}, {"wait": 0.01}, {"say": "${beds.count}"}], Ended("done", "3")),
    ],
)
async def test_a_script_ends_at_the_first_step_that_cannot_be_taken(
    steps: object, end: Ended, butler: SmallButler, models: ModelServer, tmp_path: Path
) -> None:
    *events, last = await played(Player("script", {"steps": steps}), butler, models, tmp_path)
    assert last == end
    assert len([event for event in events if isinstance(event, Called)]) <= TURNS.turns


async def test_a_token_that_has_ended_is_refused_in_a_sentence(butler: SmallButler, tmp_path: Path) -> None:
    runtime = RUNTIMES["script"]
    job = butler.job(tmp_path, runtime.config.model_validate(SCRIPT.table), TURNS)
    job.token_file.write_text("of-a-session-that-is-over")
    *_, end = [event async for event in runtime.run(job, asyncio.Event())]
    says = "`beds` was refused: the butler does not take this session's token (401)."
    assert end == Ended("failed", says)
    assert butler.told == []
