"""Links so thin that a run of parameters takes longer than a deadline: slow is not silent."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from conftest import make_daemons, run_all, small

from p2p_tally.node.links.addresses import Address
from p2p_tally.runner.simulation.simulate import simulate

RATE = 3_000  # bytes a second, each way


async def _trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes at RATE."""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(RATE // 20):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(len(piece) / RATE)
        writer.write_eof()


class ThinLine:
    """A line of RATE to an address."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._to)
        async with asyncio.TaskGroup() as both:
            both.create_task(_trickle(reader, far_writer))
            both.create_task(_trickle(far_reader, writer))
        writer.close()
        far_writer.close()

    async def open(self) -> tuple[asyncio.Server, Address]:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return server, Address("127.0.0.1", server.sockets[0].getsockname()[1])


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"merge_every": 2}, id="merge"),  # half of 4,810 parameters: 9,620 bytes each way, twice
        pytest.param({"method": "fedmd", "merge_every": 0, "probes_per_round": 200}, id="soft labels"),  # 8,000 bytes
    ],
)
async def test_what_takes_longer_than_a_deadline_is_waited_for_while_it_comes(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    federation = small(nodes=2, rounds=2, warmup=1, eval_every=2, **options)
    simulated = await asyncio.to_thread(simulate, federation)
    daemons = make_daemons(federation, tmp_path, barrier_timeout=1.5, checkpoint_every=0)
    dialled = daemons[0].transport.peers[daemons[1].name]
    server, dialled.address = await ThinLine(dialled.address.host, dialled.address.port).open()
    async with server:
        results = await run_all(daemons)
    assert [result["parameters_sha256"] for result in results] == simulated.parameters_sha256
    assert not any(daemon.node.step.roster.missed for daemon in daemons)
