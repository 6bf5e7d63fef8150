"""Property 6: every byte sent is in the ledger, and the ledger agrees with what the kernel carried."""

import asyncio
from pathlib import Path

import pytest
from conftest import make_daemons, small

from p2p_tally.node.links.sockets import KernelCount, Meter
from p2p_tally.protocol import frames

# What a connection carries besides frames: the HTTP upgrade of either side. docs/bytes.md states it.
UPGRADE = 600


@pytest.mark.parametrize("method", ["tally", "fedmd", "fedavg"])
async def test_framed_bytes_are_what_the_sockets_carried(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = small(nodes=3, rounds=12, method=method, model="mlp", width=256)
    daemons = make_daemons(federation, tmp_path, checkpoint_every=0)
    carried: dict[tuple[str, str], int] = {}
    real_close = [daemon.transport.close for daemon in daemons]
    everyone_done = asyncio.Barrier(len(daemons))

    async def run(number: int) -> None:
        daemon = daemons[number]

        async def count_and_close() -> None:
            # All have sent and read everything before the first link is closed: a run ends with a message to all
            # (Bye), and who has read that from everybody has read all.
            await everyone_done.wait()
            async with asyncio.timeout(30):
                while len(daemon.node.step.roster.left) < len(daemon.transport.peers):
                    await asyncio.sleep(0.01)
            await everyone_done.wait()
            for peer, link in daemon.transport.links.items():
                count = link.meter.count()
                if count is None:
                    pytest.skip("this kernel does not count a socket's bytes")
                carried[daemon.name, peer] = count.received
            await everyone_done.wait()
            await real_close[number]()

        monkeypatch.setattr(daemon.transport, "close", count_and_close)
        await daemon.run()

    async with asyncio.timeout(60):
        await asyncio.gather(*(run(number) for number in range(len(daemons))))
    for daemon in daemons:
        daemon.node.ledger.settle()
        for peer in daemon.transport.peers:
            booked = sum(count.framed for (sender, _), count in daemon.node.ledger.received.items() if sender == peer)
            hello = len(frames.encode(daemon.hello()))
            extra = carried[daemon.name, peer] - booked
            assert 0 <= extra - hello <= UPGRADE, (daemon.name, peer, extra, hello)
            assert booked > 300


class Ends:
    """Two ends of one TCP connection on this machine, as asyncio streams."""

    async def __aenter__(self) -> tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.StreamWriter]:
        accepted: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Future()
        self.server = await asyncio.start_server(lambda *ends: accepted.set_result(ends), "127.0.0.1", 0)
        _, self.near = await asyncio.open_connection(*self.server.sockets[0].getsockname())
        reader, self.far = await accepted
        return self.near, reader, self.far

    async def __aexit__(self, *_: object) -> None:
        for writer in (self.near, self.far):
            writer.close()
        self.server.close()


async def test_a_meter_counts_also_after_the_connection_is_gone() -> None:
    async with asyncio.timeout(30), Ends() as (near, reader, far):
        meter, other = Meter(near), Meter(far)
        near.write(b"x" * 10_000)
        assert await reader.readexactly(10_000)
        far.write(b"y" * 700)
        far.close()
        await far.wait_closed()
        other.close()  # the last word of the far end: the near one has read the end of the stream
        near.close()
        await near.wait_closed()
        count = meter.count()
        if count is None:
            pytest.skip("this kernel does not count a socket's bytes")
        assert count.sent in (10_000, 10_001)  # who dials counts its first packet too
        # At least two segments went out, of at least 40 bytes of header each.
        assert count.wire_sent == 0 or count.wire_sent >= 10_000 + 2 * 40
        meter.close()
        assert meter.count() is None


def test_counts_add_up_and_a_link_without_a_socket_has_none() -> None:
    assert KernelCount(1, 2, 3, 4) + KernelCount(10, 20, 30, 40) == KernelCount(11, 22, 33, 44)

    class Nothing:
        def get_extra_info(self, name: str, default: object = None) -> object:
            return default

    meter = Meter(Nothing())
    assert meter.count() is None
    meter.close()
