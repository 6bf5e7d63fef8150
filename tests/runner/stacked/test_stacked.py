"""The stacked engine: the exact one's rounds and bytes, its floats up to their last digits, and its files."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import small
from torch import Tensor, nn

from p2p_tally.config import Federation, NodeSettings
from p2p_tally.errors import ConfigError
from p2p_tally.ids import ranked_names
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.methods import METHODS
from p2p_tally.learning.setup import prepare
from p2p_tally.runner.runs.round_lines import RoundLog
from p2p_tally.runner.runs.run import Run
from p2p_tally.runner.simulation.simulate import Engine, EngineName, Exact, simulate
from p2p_tally.runner.stacked import group as stacked_group
from p2p_tally.runner.stacked.engine import Stacked
from p2p_tally.runner.stacked.neighbourhoods import Neighbourhoods
from p2p_tally.topologies import build

# In steps of AdamW, lr. Sums in another order differ by about 1e-7 of a parameter's size, and stay so. But a ReLU's
# input within 1e-7 of 0 may fall on the other side, which lets one example's gradient through to one unit or not, and
# the momentum carries that on: to about a step in what that unit weighs. Where it happens depends on the processor. So:
# everywhere within two steps, on average within a hundredth of one, and half of the parameters a thousand times closer.
WITHIN = 2.0
ON_AVERAGE = 1e-2
HALF_WITHIN = 1e-3
# Test examples that may be judged otherwise, of 400.
EXAMPLES = 2


def play(engine: type[Exact] | type[Stacked], federation: Federation) -> tuple[Run, Tensor]:
    """A run and its final parameters [N W], one peer's after the other's: models may differ."""
    task, topology = prepare(federation), make_topology(federation)
    players: Engine = Exact(task, topology, "cpu") if engine is Exact else Stacked(task, topology, "cpu", threads=2)
    run = Run(task.federation, [str(name) for name in ranked_names(federation.nodes)])
    players.play(RoundLog(task, run, []))
    return run, torch.cat([learner.parameters.vector.clone() for learner in players.peers()])


def assert_close(expected: Tensor, found: Tensor, lr: float) -> None:
    steps = (expected - found).abs() / lr
    assert float(steps.max()) <= WITHIN
    assert float(steps.mean()) <= ON_AVERAGE
    assert float(steps.median()) <= HALF_WITHIN


def assert_agree(federation: Federation) -> Run:
    (exact, expected), (run, found) = play(Exact, federation), play(Stacked, federation)
    assert_close(expected, found, federation.lr)
    one_example = 100 / len(prepare(federation).test)
    np.testing.assert_allclose(run.accuracy, exact.accuracy, rtol=0, atol=EXAMPLES * one_example + 1e-9)
    np.testing.assert_allclose(run.loss, exact.loss, atol=1e-3)
    for theirs, ours in zip(exact.lines, run.lines, strict=True):
        assert (theirs.round, theirs.merged) == (ours.round, ours.merged)
        assert (theirs.payload_bytes, theirs.framed_bytes) == (ours.payload_bytes, ours.framed_bytes)
        assert theirs.sent == ours.sent
        assert ours.pairwise_kl == pytest.approx(theirs.pairwise_kl, abs=1e-3)
        assert ours.agreement == pytest.approx(theirs.agreement, abs=0.01)
    return run


def fifty(**options: Any) -> Federation:
    defaults: dict[str, Any] = {
        "rounds": 50,
        "nodes": 5,
        "warmup": 5,
        "merge_every": 10,
        "local_steps": 2,
        "eval_every": 7,
    }
    # A robust mean takes other values where two are nearly alike, and last digits grow further apart: own cases below.
    defaults |= {"robust_merge": "off"}
    return Federation.parse({**defaults, **options})


@pytest.mark.parametrize("method", [method for method in METHODS if method != "desa"])  # which cannot be stacked
def test_every_method_agrees_with_exact_over_fifty_rounds(method: str) -> None:
    assert_agree(fifty(method=method, **({} if method == "local" else {"merge_every": 10})))


@pytest.mark.parametrize("method", ["tally", "fedmd", "rcfd", "feddf", "diloco", "fedprox"])
def test_a_sparse_graph_agrees(method: str) -> None:
    assert_agree(fifty(method=method, topology="star", rounds=25))


@pytest.mark.parametrize(
    "options",
    [
        {"inverse_agreement": 0.5, "disagreement_weight": 0.7, "kl_decay": 15, "topology": "ring"},
        {"inverse_agreement": 1.0, "alpha": 0.0},
        {"alpha": 1.0, "clip": 0.5},
        {"balance": 1.0, "calibrate": 0.5, "topology": "ring"},
        {"abstain": 0.5, "consensus_weight": "margin"},
        {"consensus_weight": "agreement", "topology": "gossip", "nodes": 6},
        {"consensus_weight": "agreement", "abstain": 0.5, "probe_labels": "hidden"},
        {"consensus_weight": "agreement", "method": "fedmd", "soft_precision": "int8", "topology": "matchings"},
        {"abstain": "below:0.4", "topology": "gossip", "nodes": 6, "ballot": "coded", "probe_labels": "hidden"},
        {"abstain": 0.3, "tally_weights": "mixing", "topology": "ring", "ballot": "packed"},
        {"tally_weights": "reliability", "abstain": 0.5, "probe_labels": "hidden"},
        {"tally_weights": "reliability", "topology": "ring", "hops": 2, "calibrate": 1.0},
        {"tally_weights": "reliability", "topology": "matchings", "method": "fedmd"},
        {"tally_weights": "reliability", "topology": "one-peer-exponential", "nodes": 8, "method": "rcfd"},
        {"tally_weights": "reliability", "method": "fedct", "warmup": "auto", "topology": "line"},
        {"probe_labels": "hidden", "topology": "ring", "hops": "all", "nodes": 6},  # weighed by reliability: auto
        {"robust_merge": "trim:2"},
        {"robust_merge": "median", "method": "fedavg", "nodes": 4},
        {"robust_merge": "clip", "method": "diloco"},
        {"robust_merge": "nnm-trim:1", "merge_precision": "int8", "merge_top_k": 0.1},
        {"robust_merge": "clip", "topology": "gossip", "nodes": 6, "merge_precision": "int8"},
        {"robust_merge": "off", "topology": "ring", "merge_precision": "bfloat16"},
        {"method": "gflat", "topology": "ring", "clip": 0.5, "rho": 0.2},
        {"method": "gflat", "model": "cnn", "rounds": 4},
        {"method": "dspodfl", "topology": "gossip-k:3", "nodes": 6, "merge_every": 1, "robust_merge": "clip"},
        {"method": "pame", "topology": "star", "merge_every": 1},
        {"method": "spod-gt", "topology": "matchings", "merge_every": 1},
        {"method": "dpfl", "topology": "star", "robust_merge": "clip", "partners": 1},
        {"method": "dfml", "topology": "star", "merge_every": 2, "mutual_cycle": 4},
        {"method": "dfml", "model": "cnn:4x1", "nodes": 3, "rounds": 4, "merge_every": 1},
        {"method": "fedspd", "topology": "star", "merge_every": 2, "rounds": 10, "attack": "selfish:1"},
        {"method": "fedkd", "topology": "ring", "mentor": "cnn:4x1", "model": "mlp:16", "rounds": 8},
        {"method": "dfedcad", "topology": "ring", "merge_every": 5},
        {"method": "rcfd", "top_k": 1},
        {"ballot": "coded", "topology": "gossip", "nodes": 6},
        {"ballot": "packed", "topology": "matchings"},
        {"method": "feddf", "topology": "gossip-k:3", "nodes": 6, "merge_every": 2},
        {"method": "fedmd", "topology": "one-peer-exponential", "nodes": 8},
        {"method": "fedmd", "soft_precision": "float16"},
        {"method": "fedmd", "soft_precision": "int8"},
        {"method": "rcfd", "soft_precision": "int8", "topology": "ring"},
        {"method": "fedmd", "soft_precision": "int8", "merge_when": "drift", "merge_threshold": 0.9, "merge_every": 3},
        {"merge_precision": "bfloat16"},
        {"merge_precision": "int8"},
        {"merge_precision": "int8", "method": "diloco"},
        {"merge_precision": "int8", "topology": "ring"},
        {"merge_precision": "int8", "nodes": 1},
        {"merge_when": "drift", "merge_threshold": 0.905, "merge_every": 3},
        {"nodes": 1},
        {"nodes": 40, "partition": "resample:8", "topology": "gossip", "rounds": 12},
        {"depth": 3, "width": 20},
        {"topology": "ring", "merge_over": "ring"},
        {"topology": "gossip", "degree": 3, "nodes": 8, "merge_over": "ring", "method": "diloco"},
        {"topology": "mesh", "nodes": 2, "merge_over": "ring"},
    ],
    ids=str,
)
def test_options_agree(options: dict[str, Any]) -> None:
    assert_agree(fifty(**{"rounds": 20, "eval_every": 4, **options}))


@pytest.mark.parametrize("nodes", [1, 5])
def test_a_peer_that_hears_nobody_takes_no_step_towards_itself(nodes: int) -> None:
    """Its own answer is no consensus: the slope towards it is rounding, of which AdamW would make whole steps."""
    assert_agree(fifty(method="feddf", topology="matchings", nodes=nodes, merge_every=1, rounds=20, eval_every=4))


def test_at_exactly_a_half_all_peers_of_a_mesh_open() -> None:
    """With 12 probes the mean of the peers' shares depends on the order in which floats are added."""
    run = assert_agree(
        fifty(
            warmup="auto",
            rounds=12,
            merge_every=0,
            local_steps=1,
            probes_per_round=12,
            lr=0.004,
            partition="iid",
            seed=9,
            eval_every=1,
        )
    )
    assert not any({"ready", "vote"} <= line.sent.keys() for line in run.lines)
    assert any("vote" in line.sent for line in run.lines)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "fedmd"},
        {"method": "fedmd", "hops": 2, "topology": "ring"},
        {"method": "fedmd", "soft_precision": "int8"},
        # A peer without a ballot does not count for the drift: with it these peers would merge.
        {"method": "fedmd", "merge_when": "drift", "merge_every": 9, "merge_threshold": 0.59, "partition": "iid"},
        {"method": "rcfd", "topology": "star"},
        {"method": "tally"},
        {"method": "fedmd", "warmup": "auto", "topology": "line", "lr": 0.003, "rounds": 30},
    ],
    ids=str,
)
def test_a_peer_that_has_diverged_stops_nobody(options: dict[str, Any]) -> None:
    federation = fifty(**{"rounds": 10, "warmup": 2, "eval_every": 1, "nodes": 6, "merge_every": 0, **options})
    task, topology = prepare(federation), make_topology(federation)
    exact, stacked = Exact(task, topology, "cpu"), Stacked(task, topology, "cpu", threads=2)
    list(exact.peers())[2].parameters.vector.fill_(float("nan"))
    stacked.stack.parameters[2] = float("nan")
    runs, parameters = [], []
    for engine in (exact, stacked):
        runs.append(Run(task.federation, [str(name) for name in stacked.names]))
        engine.play(RoundLog(task, runs[-1], []))
        parameters.append(torch.stack([learner.parameters.vector.clone() for learner in engine.peers()]))
    assert [line.sent for line in runs[0].lines] == [line.sent for line in runs[1].lines]
    np.testing.assert_allclose(runs[0].accuracy, runs[1].accuracy, atol=0.5 + 1e-9)
    sound = [0, 1, 3, 4, 5]
    assert parameters[0][sound].isfinite().all() and parameters[0][2].isnan().all()
    assert_close(parameters[0][sound], parameters[1][sound], federation.lr)


@pytest.mark.parametrize("method", ["fedmd", "rcfd", "feddf"])
@pytest.mark.parametrize("engine", ["exact", "stacked"])
def test_a_run_that_diverges_comes_to_its_end(method: str, engine: EngineName) -> None:
    run = simulate(
        small(method=method, lr=1e38, nodes=3, rounds=12, warmup=1, merge_every=3, eval_every=1), engine=engine
    )
    assert [line.round for line in run.lines] == list(range(1, 13))


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_part_of_the_change_agrees_in_bytes_and_closely(precision: str) -> None:
    """Which values are just large enough to be sent can hang on their last digits; the others come later."""
    federation = fifty(rounds=20, merge_top_k=0.2, merge_precision=precision, merge_every=4)
    (exact, expected), (run, found) = play(Exact, federation), play(Stacked, federation)
    assert [line.sent for line in run.lines] == [line.sent for line in exact.lines]
    assert float((expected - found).abs().mean()) <= federation.lr


@pytest.mark.parametrize(
    "options",
    [
        {"topology": "mesh"},
        {"topology": "line", "nodes": 7},
        {"topology": "line", "nodes": 7, "alpha": 0.0, "kl_decay": 30},
        {"topology": "ring", "method": "no-consensus"},
        {"topology": "ring", "method": "fedmd"},
    ],
    ids=str,
)
def test_an_automatic_warmup_opens_channels_in_the_same_rounds(options: dict[str, Any]) -> None:
    """The bytes by stage tell who was still waiting in which round."""
    run = assert_agree(fifty(warmup="auto", rounds=30, eval_every=1, lr=0.003, **options))
    if options.get("method") != "no-consensus":
        assert {"ready", "vote"} <= {stage for line in run.lines for stage in line.sent}


def test_peers_that_take_a_step_alone_keep_their_own_count() -> None:
    """On a line the channel opens from one end to the other: some peers distil in rounds where others do not."""
    federation = fifty(warmup="auto", topology="line", nodes=7, rounds=30, lr=0.003, method="no-consensus")
    task = prepare(federation)
    engine = Stacked(task, make_topology(federation), "cpu", threads=1)
    engine.play(RoundLog(task, Run(task.federation, [str(name) for name in engine.names]), []))
    assert len(set(engine.opened.tolist())) > 1


# Dealt to seven: two peers of the first, three of the second that do not stand evenly, one of each other.
MIXED = "mlp:16,mlp,mlp,mlp:32x2,mlp:8"


@pytest.mark.parametrize("method", ["tally", "fedmd", "rcfd", "no-consensus", "local"])
def test_mixed_models_agree_over_fifty_rounds(method: str) -> None:
    assert_agree(fifty(method=method, model=MIXED, nodes=7, merge_every=0))


@pytest.mark.parametrize(
    "options",
    [
        {"topology": "ring", "ballot": "coded", "inverse_agreement": 0.5},
        {"topology": "gossip", "method": "fedmd", "hops": 2, "nodes": 9},
        {"topology": "matchings", "method": "rcfd", "kl_decay": 15},
        {"topology": "line", "warmup": "auto", "lr": 0.003},
        {"nodes": 40, "partition": "resample:8", "model": "mlp:8,mlp:12,mlp:12", "rounds": 8, "warmup": 2},
        {"nodes": 2, "model": "mlp:8,mlp:12"},
        {"nodes": 4, "model": "linear,mlp:12"},
        {"rounds": 8, "warmup": 2, "model": "cnn:4x2,mlp:16", "nodes": 3},  # only some of them perceptrons
    ],
    ids=str,
)
def test_options_agree_with_mixed_models(options: dict[str, Any]) -> None:
    assert_agree(fifty(**{"rounds": 20, "eval_every": 4, "model": MIXED, "nodes": 7, "merge_every": 0, **options}))


def test_the_peers_of_a_model_are_one_group_wherever_they_stand() -> None:
    federation = fifty(model=MIXED, nodes=7, merge_every=0)
    stack = Stacked(prepare(federation), make_topology(federation), "cpu", threads=1).stack
    assert [list(group.ranks) for group in stack.groups] == [[0, 5], [1, 2, 6], [3], [4]]
    assert [block.rows for block in stack.blocks] == [slice(0, 6, 5), [1, 2, 6], slice(3, 4, 1), slice(4, 5, 1)]
    sizes = [len(learner.parameters) for learner in stack.learners()]
    assert sizes == [1210, 4810, 4810, 3466, 610, 1210, 4810]


def test_a_model_with_convolutions_is_played_peer_by_peer() -> None:
    federation = fifty(model="cnn", width=4, depth=2, rounds=8, nodes=3, merge_every=4)
    (group,) = Stacked(prepare(federation), make_topology(federation), "cpu", 1).stack.groups
    assert [len(block) for block in group.blocks] == [1, 1, 1]
    assert_agree(federation)


def test_a_model_with_dropout_and_tensors_of_its_own_runs_reproducibly() -> None:
    federation = small(model="own_models:with_extras", rounds=4)
    first, second = simulate(federation, engine="stacked"), simulate(federation, engine="stacked")
    assert first.parameters_sha256 == second.parameters_sha256
    exact = simulate(federation)
    assert [line.sent for line in first.lines] == [line.sent for line in exact.lines]


class Counting(nn.Module):
    """Looks at its numbers to decide what to do, which no batch of models can."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(x)
        return logits if float(logits.sum()) > 0 else -logits


def test_a_model_that_cannot_be_batched_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"--engine stacked: the model .* cannot be batched") as error:
        simulate(small(model="test_stacked:Counting"), engine="stacked")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model": "mlp,mlp:8,mlp", "merge_every": 0},
        {"topology": "ring", "warmup": "auto", "merge_every": 0},  # some miss steps
    ],
    ids=str,
)
def test_threads_and_blocks_change_no_bit(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"topology": "gossip", **options}
    federation = small(nodes=70, partition="resample:8", rounds=6, eval_every=1, **chosen)
    task, topology = prepare(federation), make_topology(federation)

    def played(threads: int) -> tuple[list[int], list[str], list[tuple[Any, ...]]]:
        engine = Stacked(task, topology, "cpu", threads)
        run = Run(task.federation, [str(name) for name in engine.names])
        engine.play(RoundLog(task, run, []))
        lines = [(line.accuracy, line.loss, line.agreement, line.pairwise_kl) for line in run.lines]
        blocks = [len(block) for block in engine.stack.blocks]
        return blocks, [learner.parameters.sha256() for learner in engine.peers()], lines

    cut, *one = played(1)
    for threads, parameters in ((2, 1 << 19), (4, 1 << 19), (2, 16 * 4810)):
        monkeypatch.setattr(stacked_group, "BLOCK_PARAMETERS", parameters)
        other_cut, *other = played(threads)
        assert other_cut != cut
        assert other == one


def test_the_run_folder_is_that_of_exact(tmp_path: Path) -> None:
    engines: tuple[EngineName, ...] = ("exact", "stacked")
    runs = {engine: simulate(small(), NodeSettings(out=tmp_path / engine), engine=engine) for engine in engines}
    files = [sorted(path.name for path in (tmp_path / engine).iterdir()) for engine in runs]
    assert files[0] == files[1]
    assert "node-3.safetensors" in files[1]
    summary = json.loads((tmp_path / "stacked" / "summary.json").read_text())
    assert summary["parameters_sha256"] == runs["stacked"].parameters_sha256
    assert len(set(summary["parameters_sha256"])) == 1  # a mesh that merged in its last round
    assert summary["framed_bytes"] == runs["exact"].summary()["framed_bytes"]


@pytest.mark.parametrize(
    ("nodes", "model", "expected"),
    [
        (1, "mlp", "exact"),
        (8, "mlp", "stacked"),
        (8, "cnn", "stacked"),
        (8, "mlp,mlp:8", "stacked"),
        (8, "mlp,cnn", "stacked"),
        (8, "test_stacked:Counting", "exact"),
    ],
)
def test_auto_takes_the_faster_and_says_so(
    nodes: int, model: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="p2p_tally.runner.simulation.simulate")
    simulate(small(nodes=nodes, model=model, rounds=1, tail=1, warmup=0, merge_every=0), engine="auto")
    assert f"--engine auto: {expected}" in caplog.text


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="--engine warp: accepted is exact, stacked or auto"):
        simulate(small(), engine="warp")  # type: ignore[arg-type]


def test_a_thousand_peers_play_a_round() -> None:
    run = simulate(
        Federation(nodes=1000, topology="gossip", partition="resample:8", rounds=2, warmup=1, merge_every=2),
        engine="stacked",
    )
    assert run.accuracy.shape == (2, 1000)
    assert run.lines[-1].sent["vote"]["payload"] == 16 * 10  # a byte a probe to ten neighbours
    assert run.lines[-1].sent["vector"]["payload"] == 4 * 4810 * 10


def test_parameters_that_are_not_finite_are_not_merged(caplog: pytest.LogCaptureFixture) -> None:
    run = simulate(small(method="fedavg", lr=1e38, rounds=4, warmup=0), engine="stacked")
    assert not any(line.merged for line in run.lines)
    assert "not completed" in caplog.text


@pytest.mark.parametrize("hops", [1, 2])
def test_mixing_weights_of_votes_are_never_a_matrix_of_all_pairs(hops: int) -> None:
    nodes = 20_000
    graph = Neighbourhoods(build("ring", [str(name) for name in ranked_names(nodes)]), 1, hops, "mixing")
    votes = np.zeros((nodes, 2), np.int64)
    votes[0] = 1
    histogram = graph.tally(votes, 3, np.ones(nodes, bool), 0.0)  # [N, P, C]
    share = 1 / 3 if hops == 1 else 2 / 9  # from the neighbour: by way of itself, and of the voter
    np.testing.assert_allclose(histogram[1], [[1 - share, share, 0]] * 2, rtol=1e-6)


def test_a_sparse_graph_is_never_a_matrix_of_all_pairs() -> None:
    """Ring of 20,000: all pairs would be 400 million."""
    nodes = 20_000
    graph = Neighbourhoods(build("ring", [str(name) for name in ranked_names(nodes)]), 1)
    votes = np.zeros((nodes, 2), np.int64)
    votes[0] = 1
    histogram = graph.tally(votes, 3, np.ones(nodes, bool), 0.0)  # [N, P, C]
    np.testing.assert_allclose(histogram[1], [[2 / 3, 1 / 3, 0]] * 2, rtol=1e-6)
    mixed = graph.mix(torch.eye(nodes, 4))
    np.testing.assert_allclose(mixed[1].numpy(), [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-6)
