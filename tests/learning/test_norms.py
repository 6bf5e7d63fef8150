"""BatchNorm: batch statistics in training, the probes' in evaluation, by hand; one accuracy wherever it is asked."""

from pathlib import Path

import own_models
import pytest
import torch
from conftest import make_daemons, run_all, small
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from p2p_tally.config import EngineName, Federation, NodeSettings
from p2p_tally.errors import ConfigError
from p2p_tally.ids import ranked_names
from p2p_tally.learning import norms as module
from p2p_tally.learning.data import Arrays, Examples
from p2p_tally.learning.data.probes import ProbePool
from p2p_tally.learning.norms import (
    ProbeStatistics,
    is_frozen,
    keep_no_averages,
    live_statistics,
    norms_of,
    training_mode,
)
from p2p_tally.learning.setup import make_learner, prepare
from p2p_tally.runner.simulation.simulate import simulate

WITH_NORMS = "own_models:with_norms"


def noise(*shape: int, seed: int = 0) -> Tensor:
    return 3 + 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def small_net() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    keep_no_averages(model)
    return model


def statistics(model: nn.Module, pool: Examples, batch: int = 100, anchor: Examples | None = None) -> ProbeStatistics:
    probes = ProbePool(pool, 2, 0, anchor, 1 if anchor else 0)
    return ProbeStatistics(model, probes, lambda _: batch, lambda x: x)


def held(norm: nn.Module) -> tuple[Tensor, Tensor]:
    assert isinstance(norm, nn.BatchNorm1d) and norm.running_mean is not None and norm.running_var is not None
    return norm.running_mean, norm.running_var


def test_training_writes_nothing_and_uses_the_batch() -> None:
    model = small_net()
    before = {key: value.clone() for key, value in model.named_buffers()}
    x = noise(6, 5)
    hidden = model[0](x)
    by_hand = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(model[1](hidden), by_hand, rtol=1e-4, atol=1e-5)
    assert sorted(before) == ["1.num_batches_tracked", "1.running_mean", "1.running_var"]
    assert all(torch.equal(before[key], value) for key, value in model.named_buffers())


def test_the_statistics_are_those_of_the_probes() -> None:
    model, pool = small_net(), noise(40, 5)
    statistics(model, Arrays(pool, None)).refresh()
    mean, variance = held(model[1])
    hidden = model[0](pool)
    torch.testing.assert_close(mean, hidden.mean(0))
    torch.testing.assert_close(variance, hidden.var(0))  # unbiased, as torch's own
    assert not model.training and not model[1].training


def test_in_several_batches_they_are_the_mean_of_the_batches() -> None:
    model, pool = small_net(), noise(11, 5)
    statistics(model, Arrays(pool, None), batch=5).refresh()
    hidden = model[0](pool)
    parts = hidden.tensor_split(2)  # 6 and 5: none is smaller than was asked
    torch.testing.assert_close(held(model[1])[0], (parts[0].mean(0) + parts[1].mean(0)) / 2)
    torch.testing.assert_close(held(model[1])[1], (parts[0].var(0) + parts[1].var(0)) / 2)


def test_a_large_pool_is_looked_at_from_its_first_to_its_last_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PREDICTIONS", 8)
    model = small_net()
    pool = noise(80, 5)
    pool[40:] += 5  # sorted, as a pool may be
    statistics(model, Arrays(pool, None)).refresh()
    torch.testing.assert_close(held(model[1])[0], model[0](pool[::10]).mean(0))


def test_of_a_pool_with_an_anchor_the_anchor_counts() -> None:
    model, anchor = small_net(), noise(20, 5, seed=1)
    pool = Arrays(noise(40, 5) + 9, None)
    statistics(model, pool, anchor=Arrays(anchor, torch.zeros(20, dtype=torch.int64))).refresh()
    torch.testing.assert_close(held(model[1])[0], model[0](anchor).mean(0))


@given(st.integers(0, 2**31), st.integers(2, 30), st.integers(1, 9))
def test_they_follow_from_parameters_and_probes_alone(seed: int, count: int, batch: int) -> None:
    """Whatever was seen before, bit for bit; nothing is drawn."""
    pool = Arrays(noise(count, 5, seed=seed), None)
    first, second = small_net(), small_net()
    statistics(first, pool, batch).refresh()
    other = statistics(second, pool, batch)
    with torch.no_grad():
        held(second[1])[0].fill_(7)
        second(noise(4, 5, seed=seed))
    drawn = torch.get_rng_state()
    for _ in range(2):
        other.refresh()
        assert all(torch.equal(one, two) for one, two in zip(held(first[1]), held(second[1]), strict=True))
    assert torch.equal(drawn, torch.get_rng_state())


def test_a_frozen_layer_keeps_its_statistics_in_training_too() -> None:
    model = small_net()
    model[1].requires_grad_(False)
    with torch.no_grad():
        held(model[1])[0].fill_(2)
        held(model[1])[1].fill_(4)
    assert is_frozen(model[1]) and live_statistics(model) == set()
    training_mode(model)
    assert model[2].training
    hidden = noise(6, 4)
    torch.testing.assert_close(model[1](hidden), (hidden - 2) / 2, rtol=1e-4, atol=1e-4)
    statistics(model, Arrays(noise(40, 5), None)).refresh()
    assert held(model[1])[0].tolist() == [2.0] * 4


def test_a_layer_without_parameters_or_statistics_is_not_frozen() -> None:
    assert not is_frozen(nn.BatchNorm1d(3, affine=False))
    bare = nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False))
    assert norms_of(bare) == [] and live_statistics(bare) == set()


def test_a_layer_that_is_not_called_stays_as_it_is() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.BatchNorm1d(5), nn.BatchNorm1d(5)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.used(x)
            return out

    model = Unused()
    statistics(model, Arrays(noise(40, 5), None)).refresh()
    assert held(model.spare)[0].tolist() == [0.0] * 5
    assert held(model.used)[0].abs().min() > 1


# --- a run

OPTIONS = {"model": WITH_NORMS, "rounds": 12, "local_steps": 4, "batch": 16}


def accuracy_of_file(path: Path, federation: Federation) -> float:
    """What somebody finds who has the user's code, the file and torch: a strict load, evaluation mode."""
    model = own_models.with_norms(10)
    model.load_state_dict(load_file(path), strict=True)
    x, y = prepare(federation).test.take(torch.arange(400))
    with torch.no_grad():
        return 100 * (int((model.eval()(x).argmax(-1) == y).sum()) / 400)


@pytest.mark.parametrize("engine", ["exact", "stacked"])
@pytest.mark.parametrize("options", [{}, {"merge_every": 0}, {"warmup": "auto", "merge_every": 5}], ids=str)
def test_the_saved_file_has_the_accuracy_of_the_run(
    options: dict[str, object], engine: EngineName, tmp_path: Path
) -> None:
    federation = small(**OPTIONS, **options)
    run = simulate(federation, NodeSettings(out=tmp_path / "run"), engine=engine)
    found = [accuracy_of_file(tmp_path / "run" / f"{name}.safetensors", federation) for name in run.names]
    assert found == run.summary()["accuracy"]


async def test_so_has_that_of_a_daemon(tmp_path: Path) -> None:
    federation = small(**OPTIONS, nodes=2)
    lines: list[dict[str, object]] = []
    daemons = make_daemons(federation, tmp_path, lines.append)
    await run_all(daemons)
    last = {line["name"]: line["accuracy"] for line in lines if line.get("round") == 12}
    for daemon in daemons:
        assert daemon.keep_model()
        assert accuracy_of_file(tmp_path / f"{daemon.name}.safetensors", federation) == last[daemon.name]


def test_so_has_a_checkpoint() -> None:
    task, name = prepare(small(**OPTIONS)), ranked_names(1)[0]
    first, second = (make_learner(task, name, 0, "cpu") for _ in range(2))
    for _ in range(5):
        first.train()
    said = first.evaluate()
    second.evaluate()
    second.restore(first.snapshot())
    assert second.evaluate() == said
    first.train()
    second.train()
    assert first.parameters.sha256() == second.parameters.sha256()


def test_both_engines_have_the_statistics_of_each_peer(tmp_path: Path) -> None:
    """Without dropout they agree on every figure of a line, up to floats."""
    federation = small(model="own_models:with_norms_alone", rounds=6, warmup="auto", merge_every=4)
    exact, stacked = (simulate(federation, engine=engine) for engine in ("exact", "stacked"))
    for one, other in zip(exact.lines, stacked.lines, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=1e-4)
        assert one.pairwise_kl == pytest.approx(other.pairwise_kl, abs=1e-4)
        assert one.sent == other.sent


def test_an_example_alone_is_evaluated_as_among_others() -> None:
    task = prepare(small(**OPTIONS))
    learner = make_learner(task, ranked_names(1)[0], 0, "cpu")
    x, _ = task.test.take(torch.arange(50))
    together = learner.log_probabilities(x)
    torch.testing.assert_close(learner.log_probabilities(x[7:8]), together[7:8])


def test_other_buffers_that_change_are_refused_in_one_line() -> None:
    expected = (
        r"^--model own_models:counts_its_calls: its buffer calls changes while it trains, and no merge averages "
        r"buffers; accepted are buffers that stay as they are, and BatchNorm$"
    )
    with pytest.raises(ConfigError, match=expected):
        simulate(small(model="own_models:counts_its_calls"))


def test_a_buffer_that_the_first_call_fills_is_taken() -> None:
    assert len(simulate(small(model="own_models:fills_a_cache", rounds=2)).lines) == 2
