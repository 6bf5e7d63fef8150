"""Probes of another source with a labelled anchor from the task: which come first, which have labels."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import NodeName
from p2p_tally.learning.consensus import NO_LABEL
from p2p_tally.learning.data import Arrays
from p2p_tally.learning.data.probes import ProbePool
from p2p_tally.learning.objectives import distillation_loss
from p2p_tally.learning.setup import Task, make_learner, prepare
from p2p_tally.runner.simulation.simulate import simulate

ANCHOR, POOL = 12, 30


def pool(per_round: int = 8, anchors: int = 3, seed: int = 0, labelled: bool = False) -> ProbePool:
    """Inputs tell where they come from: the anchor's are 0 to 11, the pool's from 100 on; a label is its input."""
    anchor, other = torch.arange(ANCHOR), torch.arange(100, 100 + POOL)
    examples = Arrays(other[:, None].float(), other if labelled else None)
    return ProbePool(examples, per_round, seed, Arrays(anchor[:, None].float(), anchor), anchors)


@given(
    per_round=st.integers(2, 20),
    share=st.integers(1, ANCHOR),
    seed=st.integers(0, 2**60),
    round=st.integers(1, 10_000),
)
def test_a_sample_is_anchors_first_and_each_probe_once(per_round: int, share: int, seed: int, round: int) -> None:
    anchors = min(share, per_round - 1)
    x, y = pool(per_round, anchors, seed).sample(round)
    values = x[:, 0].tolist()
    assert len(values) == len(set(values)) == per_round
    assert all(value < ANCHOR for value in values[:anchors]) and all(value >= 100 for value in values[anchors:])
    assert y is not None and y.tolist() == [int(value) for value in values[:anchors]] + [NO_LABEL] * (
        per_round - anchors
    )
    again = pool(per_round, anchors, seed).sample(round)[0]
    assert torch.equal(x, again)


def test_a_pool_with_labels_keeps_them() -> None:
    x, y = pool(labelled=True).sample(1)
    assert y is not None and torch.equal(x[:, 0].long(), y)


def test_facts_of_such_a_pool() -> None:
    probes = pool()
    assert probes.labelled and probes.votes_per_round == 8
    digests = {pool().digest(), pool(labelled=True).digest(), ProbePool(probes.examples, 8, 0).digest()}
    assert len(digests) == 3 and pool().digest() in digests


@pytest.mark.parametrize(("per_round", "anchors"), [(8, 8), (8, 0), (20, 13)])
def test_shares_that_cannot_be(per_round: int, anchors: int) -> None:
    with pytest.raises(ConfigError, match=rf"^--anchor-per-round {anchors}: accepted is from 1 to less than"):
        pool(per_round, anchors)


def test_the_label_term_is_a_mean_over_the_anchors() -> None:
    logits, labels = torch.randn(5, 4), torch.tensor([1, 2, NO_LABEL, NO_LABEL, NO_LABEL])
    loss = distillation_loss(logits, labels, None, label_weight=0.3, consensus_weight=0.0)
    alone = distillation_loss(logits[:2], labels[:2], None, label_weight=0.3, consensus_weight=0.0)
    torch.testing.assert_close(loss, alone)


# --- in a federation


@pytest.fixture
def strange(tmp_path: Path) -> str:
    """Inputs of digits' shape that are no digits."""
    path = tmp_path / "strange.npz"
    np.savez(path, x=np.random.default_rng(0).normal(size=(50, 64)).astype(np.float32))
    return f"npz:{path}"


def federation(strange: str, **more: object) -> Federation:
    return Federation.parse({"probes": strange, "nodes": 3, "rounds": 6, "warmup": 1, "anchor": 40, **more})


def rows(task: Task, x: Tensor) -> set[bytes]:
    return {row.numpy().tobytes() for row in x}


def test_the_anchor_is_carved_from_the_private_data(strange: str) -> None:
    task, without = prepare(federation(strange)), prepare(federation(strange, anchor=0))
    assert task.probes.anchor is not None and len(task.probes.anchor) == 40
    assert sum(map(len, task.shards)) == sum(map(len, without.shards)) - 40
    anchors = rows(task, task.probes.anchor.take(torch.arange(40))[0])
    for shard in task.shards:
        assert not anchors & rows(task, shard.take(torch.arange(len(shard)))[0])
    assert task.federation.alpha == 0.5 and without.federation.alpha == 0.0


def test_alpha_and_an_automatic_warmup_need_labels_and_the_anchor_gives_them(strange: str) -> None:
    assert prepare(federation(strange, alpha=0.3)).federation.alpha == 0.3
    assert prepare(federation(strange, warmup="auto")).federation.warmup == "auto"
    with pytest.raises(ConfigError, match=r"^--alpha 0.3: the probes carry no labels"):
        prepare(federation(strange, alpha=0.3, anchor=0))


def test_accuracy_on_probes_counts_the_anchors(strange: str) -> None:
    peer = make_learner(prepare(federation(strange, anchor_per_round=5)), NodeName("node-0"), 0, "cpu")
    right, of = peer.probe_accuracy(1)
    assert of == 5 and 0 <= right <= 5


def test_a_federation_with_an_anchor_runs_and_repeats(strange: str) -> None:
    first, again = (simulate(federation(strange)).parameters_sha256 for _ in range(2))
    assert first == again
    assert first != simulate(federation(strange, anchor_per_round=8)).parameters_sha256


def test_anchors_that_cannot_be(strange: str) -> None:
    with pytest.raises(ConfigError, match=r"^--anchor 40: .*accepted with --probes of another source$"):
        prepare(federation("holdout"))
    with pytest.raises(ConfigError, match=r"^--anchor 5000: accepted is less than the \d+ training examples$"):
        prepare(federation(strange, anchor=5000))
    with pytest.raises(ConfigError, match=r"^--anchor-per-round 16: accepted is from 1 to less than the 16 probes"):
        prepare(federation(strange, anchor_per_round=16))
    with pytest.raises(ConfigError, match=r"^--anchor-per-round 4: .*at most the anchor's 3$"):
        prepare(federation(strange, anchor=3))
