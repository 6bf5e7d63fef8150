"""A bit of a merge changes on a plain link, over real sockets: the link is made again, and no model is mixed."""

from pathlib import Path
from typing import Any

import pytest
from conftest import make_daemons, run_all, small
from faults.laws import one_result_a_round
from faults.watching import Records

from p2p_tally.ids import NodeName
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.protocol.frames import Limits, decode
from p2p_tally.protocol.messages import Shard, Stage

LIMITS = Limits.of(largest_ballot=100, members=5, merging=True)


def damage(daemon: Daemon, stage: Stage, round: int) -> None:
    """One bit of a parameter, so that it stays a number, in the first run of this stage and round."""
    send, left = daemon.transport.send, [1]

    def sent(peer: NodeName, frame: bytes) -> bool:
        message = decode(frame, LIMITS)
        if left and isinstance(message, Shard) and (message.stage, message.round) == (stage, round):
            left.clear()
            at = frame.index(message.data) + 1  # of a float32 in the middle of its fraction
            frame = frame[:at] + bytes([frame[at] ^ 0x10]) + frame[at + 1 :]
        return send(peer, frame)

    daemon.transport.send = sent  # type: ignore[method-assign]


@pytest.mark.parametrize("stage", [Stage.SCATTER, Stage.GATHER])
@pytest.mark.parametrize(
    "options",
    [{"nodes": 3}, {"nodes": 5}, {"nodes": 4, "topology": "ring", "merge_over": "ring"}],
    ids=["plain mean", "robust mean", "around a ring"],
)
async def test_a_damaged_run_gives_nobody_another_model(options: dict[str, Any], stage: Stage, tmp_path: Path) -> None:
    federation = small(rounds=8, merge_every=4, local_steps=1, eval_every=3, **options)
    # Nobody begins a round while a link is missing.
    alone = {"barrier_timeout": 5, "checkpoint_every": 0, "least_present": federation.nodes}
    daemons, records = make_daemons(federation, tmp_path, **alone), Records()
    for daemon in daemons:
        records.watch(daemon)
    damage(daemons[1], stage, 4)
    results = await run_all(daemons)
    assert sum(daemon.node.step.inbox.arrivals["damaged"] for daemon in daemons) == 1
    assert all(result["finished"] for result in results)
    # Who completed a merge has the model of all others that did. Then the link is made again, and all merge; around
    # a ring nobody waits for that: without one link it still has everybody.
    assert one_result_a_round(records.merges) == []
    assert "topology" in options or sum(one.round == 8 for one in records.merges) == len(daemons)
