"""Connections that a third node carries: its two ends, and the carrier, without sockets."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType
from secure import homes

from p2p_tally.errors import PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.links import carriage
from p2p_tally.node.links.carriage import Carriage
from p2p_tally.node.links.pinned import PinnedKeys
from p2p_tally.node.links.table import LinkTable
from p2p_tally.node.links.tunnel import Tunnel
from p2p_tally.protocol.carried import WINDOW, Carried, Step, decode_carried
from p2p_tally.trust.certificates import accepting, dialling

ALICE, BOB, CAROL = map(NodeName, ("alice", "bob", "carol"))  # carol carries
LIMIT = 1 << 20


def two_ends(folder: Path) -> tuple[Tunnel, Tunnel]:
    """Tunnels whose frames reach each other at the next turn of the loop."""
    keys = homes([ALICE, BOB], folder)
    ends: dict[str, Tunnel] = {}

    def sender(to: str) -> Any:
        def send(step: Step, count: int, data: bytes) -> bool:
            asyncio.get_running_loop().call_soon(arrive, to, step, count, data)
            return True

        return send

    def arrive(to: str, step: Step, count: int, data: bytes) -> None:
        if step is Step.DATA:
            assert ends[to].feed(data)
        elif step is Step.TAKEN:
            ends[to].was_taken(count)
        else:
            ends[to].end()

    client = dialling(keys[ALICE].file, keys[BOB].credential)
    server = accepting(keys[BOB].file, [keys[ALICE].credential])
    ends["a"] = Tunnel(client, server=False, limit=LIMIT, send=sender("b"))
    ends["b"] = Tunnel(server, server=True, limit=LIMIT, send=sender("a"))
    return ends["a"], ends["b"]


async def test_messages_both_ways_and_a_close(tmp_path: Path) -> None:
    one, other = two_ends(tmp_path)
    await asyncio.gather(one.shake_hands(), other.shake_hands())
    messages = [random.Random(n).randbytes(n) for n in (0, 1, 100_000, LIMIT - 1, 7)]

    async def say(end: Tunnel) -> None:
        for message in messages:
            await end.send_bytes(message)

    async def hear(end: Tunnel) -> list[bytes]:
        return [(await end.receive()).data for _ in messages]

    async with asyncio.timeout(20):
        _, _, first, second = await asyncio.gather(say(one), say(other), hear(one), hear(other))
    assert first == second == messages
    await one.close(code=4001, message=b"why")
    closed = await other.receive()
    assert (closed.type, closed.data, closed.extra) == (WSMsgType.CLOSE, 4001, "why")
    assert (await other.receive()).type is WSMsgType.CLOSED
    with pytest.raises(ConnectionError):
        await other.send_bytes(b"x")


async def test_who_does_not_read_is_sent_a_window_and_no_more(tmp_path: Path) -> None:
    one, other = two_ends(tmp_path)
    await asyncio.gather(one.shake_hands(), other.shake_hands())
    writing = asyncio.create_task(one.send_bytes(bytes(LIMIT - 1)))
    for _ in range(200):
        await asyncio.sleep(0)
    assert not writing.done()
    assert WINDOW // 2 < other._came <= WINDOW
    assert not other.feed(bytes(WINDOW))  # one that does not keep to it
    one.end()
    with pytest.raises(ConnectionError):
        await writing


async def test_a_message_past_the_limit_is_an_error(tmp_path: Path) -> None:
    one, other = two_ends(tmp_path)
    await asyncio.gather(one.shake_hands(), other.shake_hands())
    writing = asyncio.create_task(one.send_bytes(bytes(LIMIT)))
    assert (await other.receive()).type is WSMsgType.ERROR
    writing.cancel()


# --- the carrier


class FakeLink:
    direct, dialled = True, False

    def __init__(self) -> None:
        self.sent: list[Carried] = []
        self.queued = 0

    def send(self, frame: bytes) -> bool:
        self.sent.append(decode_carried(frame))
        return True


class Carrier:
    """carol, with links to alice and bob."""

    def __init__(self, folder: Path) -> None:
        keys = homes([ALICE, BOB, CAROL], folder)
        pins = {name: keys[name].fingerprint for name in (ALICE, BOB)}
        self.table = LinkTable(CAROL, dict.fromkeys(pins))
        self.links = {name: FakeLink() for name in pins}
        self.table.links.update(self.links)  # type: ignore[arg-type]
        self.refused: list[PeerError] = []
        self.booked: list[tuple[NodeName, int, int]] = []

        async def arrived(*_: Any) -> None:
            pytest.fail("nobody asked for a connection")

        self.carriage = Carriage(
            self.table,
            PinnedKeys(keys[CAROL], pins),
            LIMIT,
            random.Random(0),
            arrived,
            self.refused.append,
            lambda *sent: self.booked.append(sent),
        )

    def bring(self, via: NodeName, message: Carried) -> bool:
        return self.carriage.deliver(via, message.encode())


async def test_it_passes_on_what_was_opened_and_counts_it(tmp_path: Path) -> None:
    carrier = Carrier(tmp_path)
    sent = [Carried("alice", "bob", 7, Step.OPEN), Carried("alice", "bob", 7, Step.DATA, 0, b"xyz")]
    assert all(carrier.bring(ALICE, message) for message in sent)
    assert carrier.bring(BOB, Carried("bob", "alice", 7, Step.ACCEPT))
    assert carrier.links[BOB].sent == sent
    assert carrier.links[ALICE].sent == [Carried("bob", "alice", 7, Step.ACCEPT)]
    assert [(to, payload) for to, payload, _ in carrier.booked] == [(BOB, 0), (BOB, 3), (ALICE, 0)]
    assert carrier.booked[1][2] == len(sent[1].encode()) + 2


async def test_nobody_speaks_for_another(tmp_path: Path) -> None:
    carrier = Carrier(tmp_path)
    assert not carrier.bring(ALICE, Carried("bob", "alice", 7, Step.OPEN))
    assert not carrier.carriage.deliver(ALICE, b"\x97\x14nonsense")
    assert not carrier.links[ALICE].sent and not carrier.links[BOB].sent


@pytest.mark.parametrize("why", ["no link", "not opened", "queue", "rate"])
async def test_what_it_cannot_carry_it_ends(why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carriage, "FRAMES_A_SECOND", 2)
    carrier = Carrier(tmp_path)
    if why == "no link":
        del carrier.table.links[BOB]
    if why != "not opened":
        carrier.bring(ALICE, Carried("alice", "bob", 7, Step.OPEN))
    if why == "queue":
        carrier.links[BOB].queued = carriage.QUEUE
    for _ in range(3 if why == "rate" else 1):
        carrier.bring(ALICE, Carried("alice", "bob", 7, Step.DATA, 0, b"x"))
    assert Carried("bob", "alice", 7, Step.END) in carrier.links[ALICE].sent
    told_bob = Carried("alice", "bob", 7, Step.END) in carrier.links[BOB].sent
    assert told_bob == (why in ("queue", "rate"))


async def test_when_one_end_goes_the_other_is_told(tmp_path: Path) -> None:
    carrier = Carrier(tmp_path)
    carrier.bring(ALICE, Carried("alice", "bob", 7, Step.OPEN))
    del carrier.table.links[BOB]
    carrier.carriage.link_down(BOB)
    assert carrier.links[ALICE].sent == [Carried("bob", "alice", 7, Step.END)]


async def test_who_opens_with_a_key_that_is_not_its_own_is_refused(tmp_path: Path) -> None:
    carrier = Carrier(tmp_path)
    keys = homes([BOB], tmp_path)
    carrier.bring(BOB, Carried("alice", "carol", 7, Step.OPEN, 0, keys[BOB].credential.raw))
    assert [error.reason for error in carrier.refused] == ["introduction"]
    assert carrier.links[BOB].sent == [Carried("carol", "alice", 7, Step.END)]
