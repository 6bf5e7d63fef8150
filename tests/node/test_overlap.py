"""--overlap over real sockets: the bits and bytes of a simulation, stopped and gone on, killed and come back."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from conftest import Killed, make_daemons, run_all, run_as_simulated, small

from p2p_tally.config import Federation
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.protocol.messages import Stage
from p2p_tally.runner.simulation.simulate import simulate


def overlapped(**options: Any) -> Federation:
    return small(**{"nodes": 5, "rounds": 12, "merge_every": 3, "eval_every": 8, "overlap": True, **options})


@pytest.mark.parametrize(
    "options",
    [
        {"robust_merge": "off", "merge_precision": "int8"},
        {"method": "diloco", "topology": "gossip", "degree": 4},
        {"method": "fedmd", "topology": "ring", "hops": 2, "merge_over": "ring"},
        {"topology": "matchings", "start": "own", "ballot": "coded"},
        {"warmup": "auto", "rounds": 40, "local_steps": 5, "merge_when": "drift", "merge_threshold": 0.95},
        {"method": "fedprox", "nodes": 3, "merge_every": 1},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
async def test_same_bits_and_same_bytes(options: dict[str, Any], tmp_path: Path) -> None:
    await run_as_simulated(overlapped(**options), tmp_path)


async def test_a_merge_goes_on_while_a_node_trains_and_votes_are_a_round_late(tmp_path: Path) -> None:
    federation = overlapped(nodes=3, rounds=7, merge_every=4, eval_every=1)
    lines: list[dict[str, Any]] = []
    daemons = make_daemons(federation, tmp_path, on_line=lines.append, checkpoint_every=0)
    trained: list[bool] = []  # whether a merge was under way when local steps began

    def note(round: int, phase: str) -> None:
        if phase == "train":
            trained.append(daemons[0].node.merger._under_way is not None)

    daemons[0].node.position.listen(note)
    await run_all(daemons)
    assert [number for number, going in enumerate(trained, 1) if going] == [5]
    assert {line["round"] for line in lines if line["merged"]} == {5}
    # The channel is open from round 3 on; the first tally is that of round 3, in round 4.
    assert {line["round"] for line in lines if line["agreement"] is not None} == {4, 5, 6, 7}
    # Nobody would use votes of the last round.
    assert daemons[0].node.ledger.total_sent(Stage.VOTE).messages == 2 * 4


async def test_stopped_and_resumed_equals_never_stopped(tmp_path: Path) -> None:
    """They stop in a round at whose end votes and a merge are under way: the checkpoint has both."""
    federation = overlapped(nodes=3, merge_every=5, merge_precision="int8", rounds=14)
    daemons = make_daemons(federation, tmp_path, checkpoint_every=50)
    for daemon in daemons:
        # As an operator would, while it trains.
        def stop(round: int, phase: str, daemon: Daemon = daemon) -> None:
            if (round, phase) == (10, "train"):
                daemon.stop()

        daemon.node.position.listen(stop)
    results = await run_all(daemons)
    assert [result["round"] for result in results] == [10] * 3
    results = await run_all(make_daemons(federation, tmp_path, checkpoint_every=50, resume=True))
    whole = await asyncio.to_thread(simulate, federation)
    assert [result["parameters_sha256"] for result in results] == whole.parameters_sha256
    assert sum(result["payload_bytes"] for result in results) / 3 == whole.lines[-1].payload_bytes


async def test_the_killed_comes_back_and_is_in_step_after_a_merge(tmp_path: Path) -> None:
    federation = overlapped(nodes=4, rounds=160, eval_every=159, merge_every=10, robust_merge="off")
    daemons = make_daemons(federation, tmp_path, barrier_timeout=8, checkpoint_every=20)
    first, others = daemons[2], [*daemons[:2], daemons[3]]
    resumed = first.settings.model_copy(update={"resume": True})

    def die(round: int, phase: str) -> None:
        if (round, phase) == (41, "train"):  # with a merge under way, which the others give up
            raise Killed

    first.node.position.listen(die)

    async def twice() -> tuple[Daemon, dict[str, Any]]:
        listener = first.transport.inherited.dup()  # type: ignore[union-attr]
        with pytest.raises(Killed):
            await first.run()
        second = Daemon(federation, resumed, membership=True, inherited=listener)
        return second, await second.run()

    async with asyncio.timeout(120):
        (second, result), *results = await asyncio.gather(twice(), *(daemon.run() for daemon in others))
    assert all(one["finished"] for one in (result, *results))
    assert second.node.ledger.total_sent(Stage.VOTE).messages > 0
    assert len({one["parameters_sha256"] for one in (result, *results)}) == 1  # 160 is a round of merges
