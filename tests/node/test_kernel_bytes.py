"""Property 6: every byte sent is in the ledger, and the ledger agrees with what the kernel carried."""

import asyncio
from pathlib import Path

import pytest
from conftest import make_daemons, small

from p2p_tally.node.sockets import kernel_count
from p2p_tally.protocol import frames

# What a connection carries besides frames: the HTTP upgrade of either side. docs/bytes.md states it.
UPGRADE = 600


@pytest.mark.parametrize("method", ["tally", "fedmd", "fedavg"])
async def test_framed_bytes_are_what_the_sockets_carried(method: str, tmp_path: Path) -> None:
    federation = small(nodes=3, rounds=12, method=method, model="mlp", width=256)
    daemons = make_daemons(federation, tmp_path, checkpoint_every=0)
    carried: dict[tuple[str, str], int] = {}
    real_close = [daemon.transport.close for daemon in daemons]
    everyone_done = asyncio.Barrier(len(daemons))

    async def run(number: int) -> None:
        daemon = daemons[number]

        async def count_and_close() -> None:
            # All have sent and read everything before the first link is closed: a run ends with a word to all (Bye),
            # and who has read that from everybody has read all.
            await everyone_done.wait()
            async with asyncio.timeout(30):
                while len(daemon.node.mailbox.left) < len(daemon.transport.peers):
                    await asyncio.sleep(0.01)
            await everyone_done.wait()
            for peer, link in daemon.transport.links.items():
                count = kernel_count(link.connection)
                if count is None:
                    pytest.skip("this kernel does not count a socket's bytes")
                carried[daemon.name, peer] = count.received
            await everyone_done.wait()
            await real_close[number]()

        daemon.transport.close = count_and_close  # type: ignore[method-assign]
        await daemon.run()

    async with asyncio.timeout(60):
        await asyncio.gather(*(run(number) for number in range(len(daemons))))
    for daemon in daemons:
        daemon.node.ledger.settle()
        for peer in daemon.transport.peers:
            booked = sum(count.framed for (sender, _), count in daemon.node.ledger.received.items() if sender == peer)
            hello = len(frames.encode(daemon._hello()))
            extra = carried[daemon.name, peer] - booked
            assert 0 <= extra - hello <= UPGRADE, (daemon.name, peer, extra, hello)
            assert booked > 300
