"""Schedules of faults: they follow from a seed, the proxy does what they say, what must hold is judged, and a short
campaign holds. `scripts/chaos.py` runs long ones."""

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import chaos
import numpy as np
import pytest
from faults import laws
from faults.plan import INSIDE, KINDS, NETWORK, OUTSIDE, Fault, Schedule, make_schedule
from faults.proxy import Proxy, listener
from faults.websocket import Splitter, payload_start

from p2p_tally.config import Federation

# --- schedules


def test_a_schedule_follows_from_its_seed_and_number() -> None:
    assert make_schedule(3, 17) == make_schedule(3, 17) != make_schedule(3, 18)
    assert make_schedule(4, 17) != make_schedule(3, 17)


def test_a_campaign_of_a_thousand_has_every_kind_often_enough() -> None:
    schedules = [make_schedule(0, number) for number in range(1000)]
    planned = Counter(kind for schedule in schedules for kind in {fault.kind for fault in schedule.faults})
    assert set(planned) == set(KINDS) and min(planned.values()) >= 2 * chaos.LEAST - 10
    for schedule in schedules:
        federation = Federation.parse(schedule.options)
        assert federation.rounds % federation.merge_every == 0  # it ends with a merge
        kinds = {fault.kind for fault in schedule.faults}
        assert kinds <= {*NETWORK, *OUTSIDE} if schedule.processes else kinds <= set(INSIDE)
        assert all(1 <= fault.round < federation.rounds and fault.node != fault.other for fault in schedule.faults)


# --- the proxy


class Network:
    """Two ends and a proxy between them: `a` dials `b`."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.there, self.back = proxy.traffic["a", "b"], proxy.traffic["b", "a"]
        self.accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def connect(self) -> tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.StreamWriter]:
        """The near end's writer, and both of the far end."""
        host, port = self.proxy.address("a", "b").split(":")
        _, near = await asyncio.open_connection(host, int(port))
        near.write(HEAD)
        reader, writer = await self.accepted.get()
        assert await reader.readexactly(len(HEAD)) == HEAD
        return near, reader, writer


HEAD = b"GET / HTTP/1.1\r\n\r\n"


def frame(text: bytes) -> bytes:
    return bytes([0x82, len(text)]) + text


@asynccontextmanager
async def network(framed: bool = True) -> AsyncIterator[Network]:
    async with asyncio.timeout(30):
        sockets = {name: listener() for name in ("a", "b")}
        proxy = Proxy({name: one.getsockname()[:2] for name, one in sockets.items()}, random.Random(1), framed)
        found = Network(proxy)
        server = await asyncio.start_server(lambda *ends: found.accepted.put_nowait(ends), sock=sockets["b"])
        await proxy.start()
        try:
            yield found
        finally:
            await proxy.close()
            server.close()
            sockets["a"].close()


HANDSHAKE = frame(b"hello") + frame(b"welcome")


async def test_bytes_pass_as_they_are_and_are_counted() -> None:
    async with network() as found:
        near, far, _ = await found.connect()
        data = HANDSHAKE + frame(b"x") + b"\x82\x7e\x01\x00" + bytes(256) + b"\x82\xff" + bytes(7) + b"\x03" + bytes(7)
        near.write(data)
        assert await far.readexactly(len(data)) == data
        assert found.there.taken == found.there.given == len(HEAD) + len(data)
        assert found.proxy.fired() == Counter()


async def test_frames_are_repeated_and_change_their_order_after_the_handshake() -> None:
    async with network() as found:
        found.there.repeated = 1
        near, far, _ = await found.connect()
        near.write(HANDSHAKE + frame(b"1") + frame(b"2"))
        assert await far.readexactly(len(HANDSHAKE) + 9) == HANDSHAKE + frame(b"1") + frame(b"1") + frame(b"2")
        found.there.swapped = 1
        near.write(frame(b"3") + frame(b"4"))
        assert await far.readexactly(6) == frame(b"4") + frame(b"3")
        found.there.swapped = 1
        near.write(frame(b"5"))  # nothing follows: it comes all the same
        assert await far.readexactly(3) == frame(b"5")
        assert found.proxy.fired() == Counter({"duplicate": 1, "reorder": 1})


async def test_contents_or_streams_are_changed_by_one_bit() -> None:
    async with network() as found:
        near, far, _ = await found.connect()
        near.write(HANDSHAKE + frame(b"1"))
        await far.readexactly(len(HANDSHAKE) + 3)
        found.there.damaged = 1
        near.write(frame(b"abcd"))
        changed = await far.readexactly(6)
        assert changed[:2] == frame(b"abcd")[:2]
        assert sum((x ^ y).bit_count() for x, y in zip(changed, frame(b"abcd"), strict=True)) == 1
        assert found.proxy.fired() == Counter({"corrupt": 1})
    async with network(framed=False) as found:
        near, far, _ = await found.connect()
        found.there.changed = 1
        near.write(b"\0" * 8)
        assert sum(byte.bit_count() for byte in await far.readexactly(8)) == 1


async def test_a_cut_ends_the_link_and_lets_nobody_in_until_it_is_mended() -> None:
    async with network() as found:
        _, far, _ = await found.connect()
        found.proxy.cut("b", "a")
        assert await far.read() == b""
        host, port = found.proxy.address("a", "b").split(":")
        reader, _ = await asyncio.open_connection(host, int(port))
        assert await reader.read() == b""
        found.proxy.mend()
        await found.connect()
        assert found.proxy.fired() == Counter({"cut": 1})


async def test_one_way_is_cut_and_the_other_is_not() -> None:
    async with network() as found:
        near, far, back = await found.connect()
        found.there.held.clear()
        near.write(b"\x82\x01x")
        back.write(HEAD + b"\x82\x01y")
        while not found.there.fired["one-way"]:
            await asyncio.sleep(0.01)
        assert found.back.given == len(HEAD) + 3
        found.proxy.mend()
        assert await far.readexactly(3) == b"\x82\x01x"


@pytest.mark.parametrize(("condition", "amount"), [("delay", 0.02), ("rate", 1e4)])
async def test_bytes_are_delayed_and_slowed_down(condition: str, amount: float) -> None:
    async with network() as found:
        near, far, _ = await found.connect()
        setattr(found.there, condition, amount)
        began = asyncio.get_running_loop().time()
        near.write(frame(bytes(100)) * 2)
        await far.readexactly(204)
        assert asyncio.get_running_loop().time() - began >= 0.019
        assert found.there.fired[{"delay": "delay", "rate": "slow"}[condition]] >= 1


def test_a_stream_that_is_no_websocket_is_passed_on() -> None:
    splitter = Splitter()
    assert list(splitter.feed(b"HTTP")) == [] and splitter.rest() == b"HTTP"
    assert list(Splitter().feed(HEAD + b"\x82\x7f" + b"\xff" * 8 + b"rest"))[-1] == (
        False,
        b"\x82\x7f" + b"\xff" * 8 + b"rest",
    )
    masked = b"\x82\x84maskabcd"
    assert list(Splitter().feed(HEAD + masked))[-1] == (True, masked) and payload_start(masked) == 6


# --- what must hold


def merged(node: str, gave: list[float], took: list[float], round: int = 4) -> laws.MergeRecord:
    return laws.MergeRecord(node, round, np.float32(gave), np.float32(took))


def test_a_merge_is_the_same_at_all_who_completed_it() -> None:
    one, other = merged("a", [1, 2], [2, 3]), merged("b", [3, 4], [2, 3])
    assert laws.one_result_a_round([one, other, merged("a", [0, 0], [5, 5], round=8)]) == []
    assert laws.one_result_a_round([one, merged("b", [3, 4], [2, 4])]) == ["merge of round 4: 2 results: a; b"]
    again = [replace(merged(node, [3, 4], [2, 4]), came_back=1) for node in "bc"]
    assert laws.one_result_a_round([one, other, *again]) == []  # played again by two that came back
    late = replace(other, came_back=1)
    assert laws.one_result_a_round([one, late, *again]) == ["merge of round 4: 2 results: a, b; b, c"]


def test_a_model_of_two_merges_is_found() -> None:
    rng = np.random.default_rng(0)
    given = {name: rng.normal(size=50).astype(np.float32) for name in "abc"}
    whole = (given["a"] + given["b"]) / 2
    mixed = whole.copy()
    mixed[25:] = (given["a"] + given["c"])[25:] / 2
    records = [laws.MergeRecord("a", 4, given["a"], vector) for vector in (whole, mixed)]
    assert laws.whole_merges(records[:1], {4: given}) == []
    assert "a has no whole merge in round 4" in laws.whole_merges(records[1:], {4: given})[0]


def test_bytes_ends_models_and_logs_are_judged() -> None:
    assert laws.all_booked("a to b", 1000, 700, 200, 100) == []
    assert laws.all_booked("a to b", 1000, 600, 200, 100) and laws.all_booked("a to b", 1000, 900, 200, 100)
    assert laws.same_end({"a": "1", "b": "1", "c": "2"}, ["a", "b"]) == []
    assert laws.same_end({"a": "1", "b": "1", "c": "2"}, ["a", "b", "c"]) == [
        "2 models at those who merged last: a, b, c"
    ]
    assert laws.finite({"a": np.ones(2), "b": np.array([np.nan])}) == ["b: parameters that are not finite"]
    assert laws.clean("a", "12:00 info fine\nTask exception was never retrieved\n") == [
        "a: Task exception was never retrieved"
    ]


# --- campaigns


def line(number: int, fired: dict[str, int], wrong: list[str]) -> dict[str, Any]:
    return {
        "seed": 0, "number": number, "processes": False, "secure": False, "planned": ["cut"], "fired": fired,
        "wrong": wrong,
    }  # fmt: skip


def test_a_campaign_fails_if_a_schedule_does_or_a_kind_is_rare() -> None:
    every = dict.fromkeys(KINDS, 1)
    assert chaos.summary([line(0, every, [])], 1)[1]
    assert not chaos.summary([line(0, every, ["hangs"])], 1)[1]
    text, good = chaos.summary([line(0, every | {"cut": 0}, [])], 1)
    assert not good and "too rare, 1 wanted: cut" in text and "| cut | 1 | 0 | 0 |" in text


def test_a_campaign_goes_on_where_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, played = tmp_path / "out.jsonl", []
    out.write_text(json.dumps(line(1, dict.fromkeys(KINDS, 1), [])) + '\n{"seed": 0, "numb')

    def play(schedule: Schedule) -> dict[str, Any]:
        played.append(schedule.number)
        return line(schedule.number, {}, [])

    monkeypatch.setattr(chaos, "play", play)
    monkeypatch.setattr(sys, "argv", ["chaos.py", "--count=3", f"--out={out}", "--resume", "--least=1"])
    with pytest.raises(SystemExit) as ended:
        chaos.main()
    assert ended.value.code == 0 and played == [0, 2]
    assert "3 schedules" in capsys.readouterr().out


def small_schedule(processes: bool, *faults: Fault, secure: bool = False, **options: Any) -> Schedule:
    values = {"nodes": 3, "merge_every": 3, "warmup": 0, "local_steps": 1, "batch": 8, "rounds": 9, "eval_every": 9}
    return Schedule(0, 1, processes, secure, {**values, **options}, list(faults), waits=True)


@pytest.mark.parametrize(
    ("secure", "kinds"),
    [
        (False, ("cut", "duplicate")),
        (False, ("one-way", "reorder")),
        (False, ("restart", "clock")),
        (True, ("corrupt", "delay")),
    ],
)
def test_faults_of_the_network(secure: bool, kinds: tuple[str, ...]) -> None:
    links = (("node-0", "node-1"), ("node-1", "node-2"))
    faults = [
        Fault(kind, 1, *link, 0.01 if kind == "delay" else 3.0, 0.4) for kind, link in zip(kinds, links, strict=True)
    ]
    done = chaos.play(small_schedule(False, *faults, secure=secure))
    assert done["wrong"] == []
    assert all(done["fired"].get(kind) for kind in kinds), done["fired"]


def test_faults_of_processes_and_disks() -> None:
    faults = [Fault("kill", 3, "node-0", "node-1", 1, 0.2), Fault("stop", 3, "node-1", "node-0", 1, 0.3)]
    faults.append(Fault("full-disk", 3, "node-2", "node-0", 1, 0.2))
    done = chaos.play(small_schedule(True, *faults, rounds=30, eval_every=1))
    assert done["wrong"] == [] and {"kill", "restart", "stop", "full-disk"} <= set(done["fired"])
