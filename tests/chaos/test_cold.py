"""A hundred kills of daemons that a person would have started: the fork server flatters no other campaign."""

import ctypes
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos import campaign
from tests.chaos.ledger import OBSERVER
from tests.chaos.test_campaign import judge
from tests.rig.bench import Bench
from tests.rig.fleet import Fleet
from tests.rig.forks import Forks, Order, Process

KILLS = 100
# Who starts anew for seconds is killed seldom enough that somebody is there to take a call.
PLAN = campaign.Plan(seed=4, kills=KILLS, seconds=900, messengers=2, callers=12, mean_pause=1.5, failpoints=())
LIBC = ctypes.CDLL(None)
BUTLERS = Path(sys.executable).with_name("butlers")


class Cold(Forks):
    """Starts every process with an interpreter of its own, by the installed command."""

    def __init__(self) -> None:
        self._living: dict[int, Process] = {}

    def spawn(self, order: Order) -> Process:
        """Start it; returns as soon as it has a process id."""
        with order.log.with_suffix(".out").open("ab") as out, order.log.with_suffix(".err").open("ab") as err:
            started = subprocess.Popen(
                [str(BUTLERS), *order.argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=dict(order.env),
                cwd=order.cwd,
                start_new_session=True,
                preexec_fn=_dies_with_us,  # noqa: PLW1509  # nothing else of this process runs in the child
            )
        process = self._living[started.pid] = Process(started.pid, order)
        threading.Thread(target=self._await, args=(started, process), daemon=True).start()
        return process

    def close(self) -> None:
        """End every process that is left."""
        self.kill_all()

    def _await(self, started: "subprocess.Popen[bytes]", process: Process) -> None:
        process.code = started.wait()
        self._living.pop(process.pid, None)
        process.ended.set()


def _dies_with_us() -> None:
    LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, prctl(2)


@pytest.mark.slow
async def test_a_campaign_from_cold(bench: Bench) -> None:
    cold = Cold()
    try:
        house = await bench.house(BUTLERS_SWEEP_SECONDS="0.5", BUTLERS_CARD_BURST="100000")
        fleet = await Fleet.start(replace(house, forks=cold), "each")
        try:
            await fleet.db.execute(OBSERVER)
            done = await campaign._run(fleet, bench, PLAN)
            await fleet.stop()
        except BaseException:
            await fleet.abandon()
            raise
    finally:
        cold.close()
    judge(done, "campaign-cold")
    assert int(str(done.figures["kills"])) >= KILLS, done.figures
