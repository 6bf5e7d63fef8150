"""Links that are TLS by keys: who has one, who has none, and what either costs."""

import asyncio
from pathlib import Path

from conftest import run_all, small
from secure import LOOPS, make_secure_daemons, run_on

from p2p_tally.runner.simulation.simulate import simulate


@LOOPS
def test_same_bits_as_over_plain_links(loop: str, tmp_path: Path) -> None:
    federation = small(nodes=3, rounds=8, merge_every=4)
    simulated = simulate(federation)

    async def play() -> None:
        daemons = make_secure_daemons(federation, tmp_path, checkpoint_every=0)
        results = await run_all(daemons)
        assert [result["parameters_sha256"] for result in results] == simulated.parameters_sha256
        assert all(result["finished"] and result["missed"] == 0 for result in results)
        assert not any(daemon.transport.refusals for daemon in daemons)

    run_on(loop, play())
