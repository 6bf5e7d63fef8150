"""How good a model is on data distributed like a peer's own."""

import math

import numpy as np
import pytest
from conftest import small

from p2p_tally.learning.evaluation import own_accuracy
from p2p_tally.runner.runs.folder import as_text, read_lines
from p2p_tally.runner.runs.run import Run
from p2p_tally.runner.simulation.simulate import simulate


def test_recall_weighted_by_the_peers_own_shares_by_hand() -> None:
    # Three of four private examples are of class 0, whose recall is 8 of 10; the fourth of class 2, recall 1 of 2.
    assert own_accuracy(np.array([3, 0, 1]), np.array([8, 5, 1]), np.array([10, 10, 2])) == pytest.approx(0.725)


def test_a_class_that_is_never_tested_is_left_out() -> None:
    counts, right, tested = np.array([3, 5]), np.array([8, 0]), np.array([10, 0])
    assert own_accuracy(counts, right, tested) == pytest.approx(0.8)
    assert math.isnan(own_accuracy(np.array([0, 5]), right, tested))


def test_with_the_classes_of_the_test_set_it_is_the_accuracy() -> None:
    right, tested = np.array([4, 9, 0]), np.array([8, 12, 5])
    assert own_accuracy(3 * tested, right, tested) == pytest.approx(13 / 25)


def test_many_peers_at_once() -> None:
    counts, right = np.array([[1, 0], [0, 1]]), np.array([[3, 2], [3, 2]])
    assert own_accuracy(counts, right, np.array([4, 4])).tolist() == [0.75, 0.5]


def test_both_engines_measure_the_same_and_the_summary_has_the_tail(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Of skewed peers: each is better on its own classes than on all."""
    federation = small(nodes=3, rounds=8, tail=4, merge_every=0, partition="dirichlet:0.1", test_count=100)
    runs: list[Run] = [simulate(federation, engine=engine) for engine in ("exact", "stacked")]
    exact, stacked = (run.own_accuracy for run in runs)  # [E, N]
    assert exact == pytest.approx(stacked, abs=1e-9)
    assert (exact[-1] > runs[0].accuracy[-1]).all()
    assert runs[0].summary()["own_tail_accuracy"] == pytest.approx(exact[runs[0].tail].mean())
    path = tmp_path / "rounds.jsonl"
    path.write_text("".join(as_text(line) for line in runs[0].lines))
    assert [line.own_accuracy for line in read_lines(path)] == [line.own_accuracy for line in runs[0].lines]


def test_a_run_of_an_earlier_version_has_none() -> None:
    run = simulate(small(nodes=2, rounds=2))
    run.lines = [type(line)(**{**vars(line), "own_accuracy": None}) for line in run.lines]
    assert np.isnan(run.own_accuracy).all()
    assert "own_tail_accuracy" not in run.summary()
    assert "own_accuracy" not in run.lines[0].as_json()
