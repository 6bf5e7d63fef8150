"""A federation in parts: the bits of one engine, however many hold its peers. No Ray here: parts in one process."""

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from conftest import small
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.config import Federation, SimulationSettings
from p2p_tally.errors import ConfigError
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.setup import prepare
from p2p_tally.runner.runs.round_lines import RoundLog
from p2p_tally.runner.runs.run import Run
from p2p_tally.runner.simulation.checkpoints import EngineState
from p2p_tally.runner.simulation.simulate import simulate
from p2p_tally.runner.stacked.engine import Stacked
from p2p_tally.runner.stacked.merging import COLUMNS
from p2p_tally.runner.stacked.parts import Conductor, Part
from p2p_tally.runner.stacked.shares import Shares, even


class Elsewhere:
    """A part whose parts travel as bytes."""

    def __init__(self, federation: Federation, here: int, count: int) -> None:
        self.part = Part(federation, None, False, ".", here, count)
        self.part.prepare()

    def start(self, what: str, *arguments: Any) -> list[bytes]:
        return [pickle.dumps(value) for value in self.part.start(what, *pickle.loads(pickle.dumps(arguments)))]

    def go_on(self, *came: Any) -> list[bytes]:
        return [pickle.dumps(value) for value in self.part.go_on(*map(opened, came))]


def opened(value: Any) -> Any:
    return pickle.loads(value) if isinstance(value, bytes) else pickle.loads(pickle.dumps(value))


def fetch(references: Sequence[Any]) -> list[Any]:
    return [pickle.loads(reference) for reference in references]


def made(federation: Federation, count: int | None) -> tuple[Stacked, Conductor | None]:
    task, topology = prepare(federation), make_topology(federation)
    if count is None:
        return Stacked(task, topology, "cpu", 1), None
    conductor = Conductor([Elsewhere(federation, here, count) for here in range(count)], fetch)
    return Stacked(task, topology, "cpu", 1, place=conductor.place(Shares.of(task, count))), conductor


def played(federation: Federation, count: int | None) -> tuple[list[str], list[Any]]:
    return finished(made(federation, count)[0])


def finished(engine: Stacked) -> tuple[list[str], list[Any]]:
    run = Run(engine.federation, [str(name) for name in engine.names])
    engine.play(RoundLog(engine.task, run, []))
    lines = [{key: value for key, value in line.as_json().items() if key != "seconds"} for line in run.lines]
    return [learner.parameters.sha256() for learner in engine.peers()], lines


PLAIN = {"topology": "mesh", "robust_merge": "off"}


def crowd(**options: Any) -> Federation:
    chosen = {"nodes": 70, "partition": "resample:8", "rounds": 4, "warmup": 1, "merge_every": 2, "eval_every": 3}
    return small(**(chosen | options))


@pytest.mark.parametrize(
    "options",
    [
        PLAIN,
        {"topology": "gossip", "robust_merge": "off"},
        {"topology": "gossip"},  # neighbours' vectors, clipped
        {"topology": "mesh", "method": "diloco"},  # a trimmed mean
        {"topology": "ring", "hops": 2, "tally_weights": "mixing", "warmup": "auto", "merge_every": 0,
         "ballot": "coded"},
        {"topology": "ring", "merge_over": "ring", "inverse_agreement": 0.5, "robust_merge": "off", "calibrate": 0.5},
        {"topology": "matchings", "method": "fedmd", "robust_merge": "off"},  # another graph every round
        {"topology": "mesh", "method": "rcfd", "soft_precision": "int8", "model": "mlp:8,mlp:16", "merge_every": 0},
        {"topology": "gossip", "method": "feddf", "merge_every": 1, "robust_merge": "off"},
        {"nodes": 5, "model": "cnn", "width": 4, "depth": 1, "topology": "ring", "rounds": 3, "link": "1mbit,20ms",
         "compute": "1s"},
    ],
    ids=str,
)  # fmt: skip
def test_parts_change_no_bit(options: dict[str, Any]) -> None:
    federation = crowd(**options)
    alone = played(federation, None)
    for count in (1, 2, 4) if options == PLAIN else (3,):
        assert played(federation, count) == alone, count


def test_a_state_of_parts_is_that_of_one_and_goes_on_in_others() -> None:
    federation = crowd(topology="gossip", rounds=6, eval_every=2, robust_merge="off", method="fedprox", warmup="auto")
    states: list[EngineState] = []

    def kept(count: int | None) -> Any:
        """Play, and keep the state after round 4."""
        engine, _ = made(federation, count)
        run = Run(engine.federation, [str(name) for name in engine.names])
        log = RoundLog(engine.task, run, [])
        log.listen(lambda line: states.append(pickle.loads(pickle.dumps(engine.state()))) if line.round == 4 else None)
        engine.play(log)
        return [learner.parameters.sha256() for learner in engine.peers()]

    straight = kept(None)
    assert kept(3) == straight
    one, three = states
    assert one.notes == three.notes
    assert one.tensors.keys() == three.tensors.keys()
    for key, tensor in one.tensors.items():
        assert key == "drawn" or torch.equal(tensor, three.tensors[key]), key
    for count in (None, 2):
        engine, _ = made(federation, count)
        engine.restore(4, three)
        assert finished(engine)[0] == straight, count


def test_only_what_others_need_is_exchanged() -> None:
    """A ring in two parts: a part hears two peers of the other, and a merge takes their vectors."""
    exchanged = []
    for merge_every in (0, 3):
        options = {"nodes": 64, "rounds": 3, "warmup": 0, "eval_every": 3, "merge_every": merge_every}
        engine, conductor = made(crowd(topology="ring", robust_merge="off", **options), 2)
        finished(engine)
        assert conductor is not None
        exchanged.append(conductor.exchanged)
    vectors = 2 * 2 * 4 * 4810
    assert exchanged[1] - exchanged[0] == vectors  # of two peers, both ways
    assert exchanged[0] < 4 * 64 * 4810 + 64 * 256 + 10_000  # the models and the last evaluation, once


@given(st.integers(1, 40), st.integers(1, 1200), st.integers(1, 4), st.integers(0, 2**16))
def test_columns_of_a_mean_are_those_of_the_whole(rows: int, columns: int, parts: int, seed: int) -> None:
    vectors = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    whole = vectors.mean(0)
    cuts = even(range(0, columns, COLUMNS), columns, parts)
    assert torch.equal(torch.cat([vectors[:, cut].contiguous().mean(0) for cut in cuts if cut.stop > cut.start]), whole)


@given(st.sets(st.integers(1, 200), max_size=30), st.integers(1, 12))
def test_even_parts_begin_where_they_may_and_leave_nothing_out(places: set[int], count: int) -> None:
    starts, length = [0, *sorted(places)], 201
    parts = even(starts, length, count)
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert (parts[0].start, parts[-1].stop, len(parts)) == (0, length, count)
    assert all(part.start in starts for part in parts if part.stop > part.start)
    assert sum(part.stop > part.start for part in parts) == min(count, len(starts))


def test_shares_keep_together_what_is_computed_together() -> None:
    task = prepare(crowd())
    assert [len(held) for held in Shares.of(task, 4).held] == [16, 16, 16, 22, 0]
    assert np.array_equal(np.concatenate(Shares.of(task, 3).held), np.arange(70))
    with pytest.raises(ConfigError, match="--workers ray:6: accepted for these 70 nodes is at most ray:5; peers are"):
        Shares.of(task, 6)


@pytest.mark.parametrize(
    ("workers", "options", "said"),
    [
        ("ray:0", {}, "--workers ray:0: accepted is a whole number from 1 to the number of nodes, or ray:K"),
        ("ray:", {}, "--workers ray:: accepted is"),
        ("ray:71", {}, "--workers ray:71: accepted is at most the number of nodes, ray:70"),
        ("ray:2", {"attack": "flip:1"}, "--workers ray:2 with --attack flip:1: accepted there is no --attack, or"),
        ("ray:2", {"merge_precision": "int8"}, "accepted there is --merge-precision float32 and --merge-top-k 0"),
        ("ray:2", {"overlap": True}, "--workers ray:2 with --overlap: accepted there is no --overlap"),
        ("ray:2", {"method": "cronus"}, "--workers ray:2 with --method cronus: accepted there is tally, local"),
        ("ray:2", {"method": "pame"}, "--workers ray:2 with --method pame: accepted there is tally, local"),
        ("ray:2", {"model": "own_models:with_extras"}, "--workers ray:2: accepted for this model is 1; it draws"),
        ("ray:2", {"leave": "node-3@4"}, "--workers ray:2 with members that join or leave: accepted there is no"),
    ],
)  # fmt: skip
def test_what_parts_cannot_do_is_refused_in_one_line(workers: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        simulate(crowd(**options), SimulationSettings.parse({"workers": workers, "engine": "stacked"}))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_the_exact_engine_has_no_actors() -> None:
    with pytest.raises(ConfigError, match="--workers ray:2 with --engine exact: accepted there is a number of threads"):
        simulate(small(), SimulationSettings.parse({"workers": "ray:2"}))
