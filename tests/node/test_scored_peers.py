"""What follows from the score of a peer, over real sockets: its link is closed for a time, and all can see why."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest
from conftest import run_all
from test_faults import FAKE, FakePeer, ballot, closed_with, federation_with_fake, one_that_listens

from p2p_tally.node.links.handshake import REFUSED
from p2p_tally.node.service.admin import status
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.protocol import frames
from p2p_tally.protocol.messages import Here, Vote
from p2p_tally.protocol.scores import BEST, HALF_LIFE, Offence
from p2p_tally.runner.console.status import print_status


async def refused_at_the_door(fake: FakePeer, daemon: Daemon) -> str:
    """What the daemon says when it refuses a link."""
    link = await fake.dial(daemon)
    frames.decode_hello(await link.receive_bytes())
    message = await link.receive()
    assert message.type is aiohttp.WSMsgType.CLOSE and message.data == REFUSED
    return str(message.extra)


async def contradict(fake: FakePeer, daemon: Daemon, times: int) -> aiohttp.ClientWebSocketResponse:
    """A link over which two different ballots come for so many rounds."""
    link = await fake.join(daemon)
    await link.send_bytes(frames.encode(Here(0)))
    for _ in range(times):
        await link.send_bytes(frames.encode(Vote(1, ballot(daemon, 1))))
        await link.send_bytes(frames.encode(Vote(1, ballot(daemon, 2))))
    return link


async def test_a_link_is_closed_for_a_time_and_both_sides_hear_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with one_that_listens(tmp_path) as (fake, daemon):
        link = await contradict(fake, daemon, 4)
        assert await closed_with(link) == aiohttp.WSCloseCode.PROTOCOL_ERROR
        why = await refused_at_the_door(fake, daemon)
        assert why == "node-1 has closed its link to node-0 for a time: two answers, 4 times"
        assert daemon.transport.refusals == {"score": 1}

        said = json.loads(json.dumps(status(daemon.node, daemon.transport, daemon.metrics)))
        assert said["scores"]["node-0"] == {
            "score": -70.0, "standing": "link closed", "reasons": ["two answers, 4 times"],
        }  # fmt: skip
        assert said["scores"]["node-2"] == {"score": 10.0, "standing": "good", "reasons": []}
        print_status([{"url": "x", **said}])
        assert "node-1: node-0 link closed (score -70.0): two answers, 4 times\n" in capsys.readouterr().out
        metrics = {(m.name, *s.labels.values()): s.value for m in daemon.metrics.registry.collect() for s in m.samples}
        assert metrics["p2p_tally_score", "node-0"] == -70.0
        assert metrics["p2p_tally_offences", "node-0", "two answers"] == 4.0

        daemon.node.step.roster.pass_time(HALF_LIFE, 1.0)  # 80 points of breaches become 40
        link = await fake.join(daemon)
        await link.close()


async def test_on_plain_links_a_short_visit_leaves_no_mark_on_the_name(tmp_path: Path) -> None:
    """Whoever is there next may be somebody else: names are not proven there."""
    async with one_that_listens(tmp_path) as (fake, daemon):
        link = await contradict(fake, daemon, 2)
        async with asyncio.timeout(10):
            while daemon.node.step.roster[FAKE].score.counts[Offence.CONTRADICTION] < 2:
                await asyncio.sleep(0.01)
        assert not daemon.node.step.roster[FAKE].score.merged
        await link.close()
        link = await fake.join(daemon)
        assert daemon.node.step.roster[FAKE].score.value == BEST
        await link.close()


async def test_one_that_votes_late_in_every_round_costs_ten_deadlines_and_no_honest_peer_its_standing(
    tmp_path: Path,
) -> None:
    """It cost nearly a deadline in every round."""
    rounds, deadline = 40, 0.2
    async with federation_with_fake(tmp_path, nodes=4, rounds=rounds, barrier_timeout=deadline) as (fake, daemons):
        running = asyncio.create_task(run_all(daemons))
        await asyncio.gather(*(votes_late(fake, daemon, deadline) for daemon in daemons))
        results = await running
    assert all(result["finished"] for result in results)
    for daemon in daemons:
        scores = daemon.node.step.scores()
        assert 0 < scores[FAKE].counts[Offence.SLOW] < rounds / 2  # in most rounds nobody waited for it
        assert all(score.merged for score in scores.values())


async def votes_late(fake: FakePeer, daemon: Daemon, deadline: float) -> None:
    """A peer that votes at 95 % of the deadline, over one link until it ends."""
    link = await fake.join(daemon)
    loop = asyncio.get_running_loop()
    sending: set[asyncio.Task[None]] = set()

    def send(frame: bytes) -> None:
        sending.add(loop.create_task(link.send_bytes(frame)))

    await link.send_bytes(frames.encode(Here(0)))
    async for message in link:
        if message.type is aiohttp.WSMsgType.BINARY and message.data[1] == Vote.kind:
            heard = frames.decode(message.data, daemon.node.step.inbox._limits)
            assert isinstance(heard, Vote)
            loop.call_later(0.95 * deadline, send, frames.encode(Vote(heard.round, ballot(daemon))))
    await asyncio.gather(*sending, return_exceptions=True)
