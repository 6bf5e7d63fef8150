"""Federations with liars: both engines agree, daemons give the same bits, a resumed run too, and results are honest."""

from pathlib import Path

import numpy as np
import pytest
from conftest import run_as_simulated, small

from p2p_tally.config import SimulationSettings
from p2p_tally.errors import ConfigError
from p2p_tally.runner.runs.run import Run
from p2p_tally.runner.simulation.simulate import simulate

VOTES = ["flip:1", "targeted:3-8:1", "second-choice:1", "copy:2", "random:2"]
PARAMETERS = ["sign:1", "scale:1", "alie:1", "ipm:1", "mimic:1", "selfish:1", "noise:1"]


def with_liars(attack: str | None, **options: object):
    defaults = {"nodes": 5, "rounds": 8, "warmup": 1, "merge_every": 4, "eval_every": 4}
    return small(**{**defaults, "attack": attack, **options})


def summaries(federation) -> tuple[Run, Run]:
    return simulate(federation, engine="exact"), simulate(federation, engine="stacked")


def assert_alike(exact: Run, stacked: Run) -> None:
    assert exact.summary()["tail_accuracy"] == pytest.approx(stacked.summary()["tail_accuracy"], abs=1.0)
    np.testing.assert_allclose(exact.loss, stacked.loss, rtol=1e-3)
    assert exact.summary()["payload_bytes"] == stacked.summary()["payload_bytes"]


@pytest.mark.parametrize("attack", [*VOTES, *PARAMETERS, "flip:1,sign:1"])
def test_the_engines_agree_on_what_liars_do(attack: str) -> None:
    exact, stacked = summaries(with_liars(attack))
    assert_alike(exact, stacked)
    honest = simulate(with_liars(None), engine="stacked")
    assert stacked.parameters_sha256[0] != honest.parameters_sha256[0], "an attack that changes nothing"


@pytest.mark.parametrize(
    "options",
    [
        {"topology": "ring"},
        {"method": "fedmd"},
        {"ballot": "coded"},
        {"method": "rcfd"},
        {"method": "fd"},
        {"method": "fedproto"},
    ],
)
def test_on_other_graphs_and_answers_too(options: dict[str, object]) -> None:
    assert_alike(*summaries(with_liars("flip:2,sign:1", **options)))


@pytest.mark.parametrize("options", [{"probe_labels": "hidden"}, {}, {"probe_labels": "hidden", "topology": "ring"}])
def test_the_engines_agree_on_exams(options: dict[str, object]) -> None:
    federation = with_liars("flip:2", exam=8, rounds=24, merge_every=0, eval_every=12, **options)
    exact, stacked = summaries(federation)
    assert_alike(exact, stacked)
    assert exact.summary()["distrusted"] == stacked.summary()["distrusted"]


@pytest.mark.parametrize("method", ["fedmd", "rcfd", "dsfl", "idkd", "cronus", "feddf"])
def test_the_engines_agree_on_trimmed_soft_labels(method: str) -> None:
    assert_alike(*summaries(with_liars("flip:1", method=method, robust_soft="trim:1", merge_every=None)))


@pytest.mark.parametrize("attack", ["equivocate:1", "withhold:vote:1", "withhold:gather:1", "withhold:announce:2"])
def test_lies_about_messages_end(attack: str) -> None:
    run = simulate(with_liars(attack), engine="exact")
    assert run.lines[-1].round == 8


def test_a_selfish_member_does_better_than_those_it_lies_to() -> None:
    """After a merge the honest have what the first of them had alone, and the liar has the mean of all."""
    options = {"method": "fedavg", "rounds": 40, "merge_every": 20, "eval_every": 20, "local_steps": 5}
    run = simulate(with_liars("selfish:1", robust_merge="off", partition="dirichlet:0.1", **options), engine="stacked")
    *honest, selfish = run.accuracy[-1].tolist()
    assert len(set(honest)) == 1 and selfish > honest[0] + 3
    with pytest.raises(ConfigError, match="--attack selfish: it takes another result than the others, and changes are"):
        simulate(with_liars("selfish:1", merge_precision="int8"), engine="stacked")
    with pytest.raises(ConfigError, match="and another method than fedkd"):
        simulate(with_liars("selfish:1", method="fedkd"), engine="stacked")


def test_who_answers_for_classes_cannot_copy() -> None:
    with pytest.raises(ConfigError) as caught:
        simulate(with_liars("copy:1", method="fd"))
    assert str(caught.value) == "--attack copy: the method fd answers for classes, not for probes; accepted is flip"


def test_results_are_those_of_the_honest() -> None:
    run = simulate(with_liars("flip:2"), engine="stacked")
    summary = run.summary()
    assert summary["liars"] == ["node-3", "node-4"] and summary["attack"] == "flip:2"
    assert summary["tail_accuracy"] == pytest.approx(run.accuracy[run.tail][:, :3].mean())
    assert len(summary["accuracy"]) == 5
    assert "liars" not in simulate(with_liars("flip:0"), engine="stacked").summary()


@pytest.mark.parametrize("engine", ["exact", "stacked"])
def test_a_resumed_run_has_the_same_bits(engine, tmp_path: Path) -> None:
    federation = with_liars("random:2", exam=8, rounds=24, merge_every=0, eval_every=4, probe_labels="hidden")
    whole = simulate(federation, engine=engine)
    settings = SimulationSettings(out=tmp_path / "run", engine=engine, checkpoint_seconds=1e-9)

    class Stop(Exception):
        pass

    def stop(line) -> None:
        if line.round == 20:
            raise Stop

    with pytest.raises((Stop, ExceptionGroup)):
        simulate(federation, settings, stop)
    resumed = simulate(federation, settings, resume=True)
    assert resumed.parameters_sha256 == whole.parameters_sha256


@pytest.mark.parametrize(
    ("attack", "options"),
    [
        ("flip:1,sign:1", {}),
        ("random:2,noise:1", {}),
        ("second-choice:1,sign:1", {"exam": 8, "probe_labels": "hidden", "rounds": 20}),
        ("targeted:3-8:1", {"method": "fedmd", "robust_soft": "trim:1"}),
    ],
    ids=str,
)
async def test_daemons_lie_as_simulated(attack: str, options: dict[str, object], tmp_path: Path) -> None:
    await run_as_simulated(with_liars(attack, **options), tmp_path)


def test_an_exam_needs_data_to_spare() -> None:
    with pytest.raises(ConfigError, match="--exam 8: with --method feddf"):
        simulate(with_liars(None, exam=8, method="feddf", merge_every=None))
