"""The simulator: reproducible, frugal, and telling the story that the figures tell."""

import asyncio
import gc
import json
import logging
import math
import random
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import small
from safetensors.numpy import load_file

from p2p_tally.config import Federation, NodeSettings, parse_options, read_options
from p2p_tally.ids import NodeName
from p2p_tally.learning.methods import METHODS
from p2p_tally.node.links import memory
from p2p_tally.runner.experiments.experiment import ByteFacts, Cell
from p2p_tally.runner.experiments.payload import cell_bytes
from p2p_tally.runner.simulation import simulate as module
from p2p_tally.runner.simulation.simulate import simulate

DIGITS = ByteFacts(classes=10, parameters=4810)


def test_the_same_federation_gives_the_same_bits() -> None:
    first, second = simulate(small(seed=3)), simulate(small(seed=3))
    assert first.parameters_sha256 == second.parameters_sha256
    assert first.accuracy.tolist() == second.accuracy.tolist()
    assert simulate(small(seed=4)).parameters_sha256 != first.parameters_sha256


@pytest.mark.parametrize("method", list(METHODS))
def test_one_node_alone_works(method: str) -> None:
    run = simulate(small(nodes=1, method=method))
    assert len(run.parameters_sha256) == 1
    assert run.lines[-1].payload_bytes == 0


@pytest.mark.parametrize("method", list(METHODS))
def test_a_ring_of_two_works(method: str) -> None:
    run = simulate(small(nodes=2, topology="ring", method=method))
    assert len(run.lines) == 8
    # By chance over both links, in parts, by each peer's own choice, or with what coding kept: models differ.
    merged = run.federation.merge_every and method not in ("local", "pame", "spod-gt", "dpfl", "dfml", "fedkd")
    assert (len(set(run.parameters_sha256)) == 1) == bool(merged)


@pytest.mark.parametrize("topology", ["mesh", "ring", "star"])
@pytest.mark.parametrize("method", list(METHODS))
def test_a_runs_ledger_equals_the_closed_form(method: str, topology: str) -> None:
    """What a run sent, to the byte, is what `p2p-tally payload` says a run like it sends."""
    federation = small(nodes=5, method=method, topology=topology, rounds=12, kl_decay=5, top_k=2)
    run = simulate(federation)
    cell = Cell(method, federation, replace(DIGITS, features=64, layout=((64, 64), (64,), (10, 64), (10,))), "star")
    assert run.summary()["payload_bytes"] == cell_bytes(cell).sent_bytes


@pytest.mark.parametrize("precision", ["float16", "int8"])
@pytest.mark.parametrize("method", ["fedmd", "rcfd", "feddf"])
def test_so_it_does_with_rounded_probabilities(method: str, precision: str) -> None:
    federation = small(method=method, soft_precision=precision)
    cell = Cell(method, federation, DIGITS, "star")
    assert simulate(federation).summary()["payload_bytes"] == cell_bytes(cell).sent_bytes


@pytest.mark.parametrize("precision", ["float16", "int8"])
@pytest.mark.parametrize("method", ["fedmd", "rcfd"])
def test_all_peers_learn_from_the_same_rounded_answers(method: str, precision: str) -> None:
    """Each node's own among them: one that took its own unrounded would have another target than its neighbours."""
    row, seen = METHODS[method], []

    def watched(*given: Any) -> np.ndarray:
        assert row.target is not None
        made = row.target(*given)
        if len(given[0]) == 4:  # before the run a user's row is tried, with the answers of fewer
            seen.append(made.tobytes())
        return made

    watching = replace(row, name="watching", target=watched)
    simulate(small(method=watching, soft_precision=precision, merge_every=0))
    assert len(seen) == 4 * 6  # nodes x open rounds
    assert len(set(seen)) == 6


def test_a_channel_of_no_weight_sends_nothing() -> None:
    assert simulate(small(alpha=1, merge_every=0)).lines[-1].framed_bytes == _goodbyes(4)
    faded = simulate(small(rounds=10, warmup=2, kl_decay=3, merge_every=0))
    votes = [line.sent.get("vote", {}).get("payload", 0) for line in faded.lines]
    # lambda at rounds 3, 4, 5 is 2/3, 1/3, 0: two rounds of 16 bytes to each of 3 neighbours.
    assert votes == [0, 0, 48, 48, 0, 0, 0, 0, 0, 0]


def _goodbyes(nodes: int) -> float:
    """Framed bytes, mean over peers, of the one word that opens a run: 3 bytes in a frame of 2, or 6 where masked."""
    return (nodes - 1) * (3 + (2 + 6) / 2)


def test_order_of_delivery_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Property 3: frames that arrive late, shuffled and twice give the same round."""
    federation = small(nodes=5, topology="gossip", degree=4, rounds=10)
    straight = simulate(federation)

    class Shuffling(memory.MemoryTransport):
        """Holds frames back and lets them go in any order, some of them twice; a link's own order is kept for runs."""

        generator = random.Random(7)
        held: ClassVar[list[tuple[NodeName, NodeName, bytes]]] = []

        def send(self, peer: NodeName, frame: bytes) -> bool:
            self.held.append((self._name, peer, frame))
            asyncio.get_running_loop().call_soon(self._release)
            return True

        def _release(self) -> None:
            if not self.held:
                return
            sender, receiver, frame = self.held.pop(self.generator.randrange(len(self.held)))
            receivers = self._network.receivers
            for _ in range(self.generator.choice((1, 2))):
                if receiver in receivers:
                    receivers[receiver].deliver(sender, frame)

    monkeypatch.setattr(module, "MemoryTransport", Shuffling)
    assert simulate(federation).parameters_sha256 == straight.parameters_sha256


def test_however_votes_are_written_the_same_is_learned() -> None:
    """Lossless: byte, packed and coded ballots give the same bits of learning, in ever fewer bytes."""
    runs = {
        ballot: simulate(Federation(rounds=100, merge_every=0, ballot=ballot)) for ballot in ("byte", "packed", "coded")
    }
    assert len({tuple(run.parameters_sha256) for run in runs.values()}) == 1
    sent = {ballot: run.lines[-1].payload_bytes for ballot, run in runs.items()}
    assert sent["byte"] == 90 * 7 * 16
    assert sent["packed"] == 90 * 7 * 8
    assert sent["coded"] < 0.5 * sent["packed"]


def test_mesh_equals_a_relay() -> None:
    """Property 2: every node of a mesh computes the same consensus, so FedDF's students are one model."""
    run = simulate(small(nodes=4, method="feddf", rounds=6, merge_every=2))
    assert len(set(run.parameters_sha256)) == 1


def test_each_line_measures_what_it_says() -> None:
    run = simulate(small(rounds=6))
    for line in run.lines:
        assert len(line.accuracy) == len(line.loss) == 4
        assert 0 <= line.margin <= line.agreement <= 1
        assert 0 <= line.plurality_right <= 1
        assert line.pairwise_kl >= 0
        assert {"train", "evaluate"} <= line.seconds.keys()
        assert line.framed_bytes >= line.payload_bytes
    assert [line.merged for line in run.lines] == [False, False, False, True, False, False]
    assert run.lines[3].pairwise_kl == pytest.approx(0, abs=1e-12)  # right after a merge all are one model
    assert run.lines[2].pairwise_kl > 0.01


def test_the_run_folder_holds_what_it_should(tmp_path: Path) -> None:
    run = simulate(small(seed=2), NodeSettings(out=tmp_path / "run"))
    folder = tmp_path / "run"
    names = {f"node-{rank}.safetensors" for rank in range(4)}
    assert {path.name for path in folder.iterdir()} == names | {
        "config.toml", "rounds.jsonl", "summary.json", "made.json", "accuracy.svg",
    }  # fmt: skip
    assert json.loads((folder / "summary.json").read_text()) == run.summary()
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(1, 9))
    assert lines[-1]["accuracy"] == run.summary()["accuracy"]
    tensors = load_file(folder / "node-0.safetensors")
    assert sum(tensor.size for tensor in tensors.values()) == 4810
    assert "<svg" in (folder / "accuracy.svg").read_text()
    # Complete: every option stands in the file, and the file alone gives the same bits.
    written = tomllib.loads((folder / "config.toml").read_text())
    assert {"warmup", "alpha", "merge_every", "tail", "eval_every"} <= written.keys()
    federation, _ = parse_options(read_options(folder / "config.toml"), NodeSettings)
    assert simulate(federation).parameters_sha256 == run.parameters_sha256


def test_memory_does_not_grow_with_rounds() -> None:
    """Objects that live after a long run are as many as after a short one, but for the lines of its record."""

    def survivors(rounds: int) -> int:
        seen = []

        def count(line: object) -> None:
            if line.round in (20, rounds):  # type: ignore[attr-defined]
                gc.collect()
                seen.append(len(gc.get_objects()))

        simulate(small(rounds=rounds, eval_every=10, merge_every=3), on_line=count)
        return seen[1] - seen[0]

    survivors(40)  # caches fill
    short, long = survivors(40), survivors(200)
    # Each evaluated round leaves one line: a handful of containers. Nothing else may stay.
    assert long - short < 16 * 12


def test_probes_in_the_test_set_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((300, 6)).astype(np.float32), generator.integers(3, size=300)
    np.savez(tmp_path / "task.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
    np.savez(tmp_path / "probes.npz", x=x[180:220], y=y[180:220])
    options = {"data": f"npz:{tmp_path / 'task.npz'}", "probes": f"npz:{tmp_path / 'probes.npz'}", "partition": "iid"}
    with caplog.at_level(logging.WARNING):
        simulate(small(**options))
    assert "20 of 40 probes are in the test set too" in caplog.text


def test_the_story_of_the_figures() -> None:
    """One seed at full length, against the figures: the bridge beats its FedAvg, and both beat going alone."""
    tails, spreads = {}, {}
    for method in ("tally", "fedavg", "local"):
        summary = simulate(Federation(method=method, merge_every=None if method == "local" else 50)).summary()
        tails[method], spreads[method] = summary["tail_accuracy"], summary["cross_peer_std"]
    assert tails["tally"] >= tails["fedavg"] + 5
    assert tails["fedavg"] >= tails["local"] + 10
    assert spreads["tally"] < spreads["fedavg"] / 2


def test_results_are_arrays() -> None:
    run = simulate(small(rounds=6, eval_every=5))
    assert run.rounds.tolist() == [5, 6]
    assert run.accuracy.shape == run.loss.shape == (2, 4)
    assert not math.isnan(run.summary()["tail_accuracy"])
    assert run.summary()["run"] is None
