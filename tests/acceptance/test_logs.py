"""What a running fleet says about itself: a line for each end of a delivery, and its gauges."""

import json
import re
from importlib.metadata import version
from pathlib import Path

from tests.rig import fresh
from tests.rig.fleet import Fleet
from tests.rig.waiting import until


def told_of(path: Path, notification_id: object) -> list[dict[str, object]]:
    """The lines of a log about the ends of that message's delivery; every line is JSON, as the log is no terminal."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [one for one in lines if one["event"] == "delivery_ended" and one.get("notification") == notification_id]


async def test_each_end_of_a_delivery_is_one_line_of_json(fleet: Fleet) -> None:
    said = fresh.words("logged")
    answer = await fleet.notify("greeter", channel="telegram", message=said)
    assert answer["status"] == "ok"
    logs = [process.err for process in fleet.started]
    # Who called is answered as soon as the end is stored, and may read before it is logged.
    [line] = await until(lambda: [one for path in logs for one in told_of(path, answer["notification_id"])])
    assert {key: line[key] for key in ("butler", "kind", "channel", "state", "attempt", "level")} == {
        "butler": "greeter",
        "kind": "owner",
        "channel": "telegram",
        "state": "sent",
        "attempt": 1,
        "level": "info",
    }
    assert isinstance(line["seconds"], float)
    assert not [path for path in logs if said in path.read_text()]


async def test_the_messengers_metrics_say_what_waits_and_what_runs(fleet: Fleet) -> None:
    async with fleet.http.get(f"{fleet.url('messenger')}/metrics") as answer:
        text = await answer.text()
    assert f'butlers_build_info{{version="{version("butlers")}"}} 1.0' in text
    for name in ("butlers_oldest_approval_seconds", "butlers_brakes_on"):
        assert re.search(rf"^{name} [0-9.e+]+$", text, re.MULTILINE)
    assert "# TYPE butlers_approvals_waiting gauge" in text
