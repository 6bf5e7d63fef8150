"""DeSA by hand: how anchors are made, what is sent of them and when, and what is learned; what is refused."""

from typing import Any

import numpy as np
import pytest
import torch
from conftest import small
from torch import Tensor

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.anchors import Anchors, make_anchors, name_of
from p2p_tally.learning.data import Arrays
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.knowledge.desa import by_name, drawn_to_anchors
from p2p_tally.learning.schedule import resolve
from p2p_tally.learning.setup import prepare
from p2p_tally.runner.simulation.simulate import simulate

LN2 = float(np.log(2))


def test_anchors_have_the_means_of_their_classes_and_are_no_examples() -> None:
    """Two classes around (4, 0) and (0, 4), of spread 0.5: means of five anchors each are near, and in the range."""
    draw = torch.Generator().manual_seed(0)
    centres = torch.tensor([[4.0, 0.0], [0.0, 4.0]])
    labels = torch.arange(80) % 2
    inputs = centres[labels] + 0.5 * torch.randn(80, 2, generator=draw)
    made, of = make_anchors(inputs, labels, 10, torch.Generator().manual_seed(1))
    assert of.tolist() == [0] * 5 + [1] * 5
    for label in (0, 1):
        torch.testing.assert_close(made[of == label].mean(0), inputs[labels == label].mean(0), atol=0.15, rtol=0)
    assert bool((made <= inputs.max(0).values).all() and (made >= inputs.min(0).values).all())
    assert float(torch.cdist(made, inputs).min()) > 0
    again, _ = make_anchors(inputs, labels, 10, torch.Generator().manual_seed(1))
    assert torch.equal(made, again)


def subject(shift: float) -> Anchors:
    x = torch.arange(12.0).reshape(6, 2) + shift
    private = Arrays(x, torch.tensor([0, 1, 0, 1, 0, 1]))
    return Anchors(Federation(probes_per_round=2), private, 2, torch.Generator().manual_seed(3), lambda raw: raw)


def test_the_first_answer_is_the_anchors_and_the_others_are_for_them() -> None:
    """Two peers with two anchors each. After the first round each has all four, its own first, and two private examples
    behind them. Rows of the target are found by name: of the other's answer 1/4, 3/4 and 1, 0; its own did not come."""
    mine, theirs = subject(0.0), subject(100.0)
    told = []
    for peer in (mine, theirs):
        x, y = peer.sample(1)
        assert x.shape == (2 + 2, 2) and y is not None and y[:2].tolist() == [0, 1]
        told.append(np.asarray(peer.answer(np.full((4, 2), 0.5, np.float32), y)))
        assert told[-1].shape == (2, 1 + 2) and told[-1][:, 0].tolist() == [0.0, 1.0]
    mine.hear(told)
    theirs.hear(told)
    mine.hear(told)  # nothing is kept twice
    x, y = mine.sample(2)
    assert x.shape == (4 + 2, 2) and y is not None and y[:4].tolist() == [0, 1, 0, 1]
    assert x[2:4].tolist() == told[1][:, 1:].tolist()
    theirs.sample(2)
    answer = np.asarray(theirs.answer(np.array([[0.25, 0.75], [1, 0], *[[0.5, 0.5]] * 4], np.float32), y))
    name = 2 + name_of(told[1])
    assert answer.tolist() == [[name, 0.25, 0.75], [name, 1.0, 0.0]]
    rows = mine.rows(torch.from_numpy(by_name([answer], 2, Federation())), y)
    assert rows.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0.25, 0.75], [1, 1, 0], [-1, 0, 0], [-1, 0, 0]]
    silent = mine.rows(torch.from_numpy(by_name(told, 2, Federation())), y)  # anchors alone answer nothing
    assert silent[:, 0].tolist() == [0, 0, 0, 0, -1, -1]


def test_what_is_kept_comes_back() -> None:
    mine, theirs = subject(0.0), subject(100.0)
    theirs.sample(1)
    mine.hear([np.asarray(theirs.answer(np.zeros((4, 2), np.float32), None))])
    other = subject(0.0)
    other.restore({key: value.clone() for key, value in mine.state.items()})
    assert torch.equal(other.state["known"], mine.state["known"]) and len(other.state["known"]) == 2
    assert not other.state["told"]


def test_an_answer_counts_by_its_weight() -> None:
    answers = [np.array([[5.0, 1.0, 0.0]], np.float32), np.array([[6.0, 0.0, 1.0]], np.float32)]
    assert by_name(answers, 2, Federation())[:, 1].tolist() == [1.0, 1.0]
    assert by_name(answers, 2, Federation(), np.array([0.75, 0.25]))[:, 1].tolist() == [1.5, 0.5]


def test_the_loss_on_paper() -> None:
    """One feature, two classes, all logits even, so every cross-entropy is ln 2. Two anchors of class 0 with features 1
    and 3, of which one has an answer, and private examples of class 0 with feature 5 and of class 1 with 7. The mean
    of the anchors is 2: the first private example is 3 away, squared 9; class 1 has no anchor. With weights 0.5 and
    0.1: 0.5 ln 2 + 0.1 ln 2 + 0.1 (9 + 0) / 2. Its slope pulls the private example, not the anchors."""
    features = torch.tensor([1.0, 3.0, 5.0, 7.0], requires_grad=True)
    outputs = torch.cat([features[:, None], torch.zeros(4, 2)], 1)
    labels = torch.tensor([0, 0, 0, 1])
    rows = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    loss = drawn_to_anchors(outputs, labels, rows, 0.5, 0.1, 2)
    assert float(loss.detach()) == pytest.approx(0.6 * LN2 + 0.45)
    (slope,) = torch.autograd.grad(loss, features)
    assert slope.tolist() == pytest.approx([0.0, 0.0, 0.1 * 2 * 3 / 2, 0.0])
    alone = drawn_to_anchors(outputs, labels, None, 0.5, 0.0, 2)
    assert float(alone.detach()) == pytest.approx(0.5 * LN2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"topology": "gossip-k:1"},
            "--topology gossip-k:1: the method desa sends its examples once, to the neighbours",
        ),
        ({"exam": 8}, "--exam 8: the method desa answers for its own examples, not for probes; accepted is 0"),
        ({"join": "node-2@3"}, "--join and --leave: the method desa sends its examples once"),
        ({"warmup": "auto"}, "--warmup auto: the method desa looks at no probes; accepted is a number of rounds"),
        ({"overlap": True}, "--overlap: the method desa exchanges what it knows"),
    ],
)
def test_what_does_not_go_together_is_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        federation = resolve(small(method="desa", merge_every=0, **options), labelled=True)
        make_topology(federation)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_liars_may_flip_their_answers_but_not_copy_others() -> None:
    with pytest.raises(
        ConfigError, match="the method desa answers for its own examples, not for probes; accepted is f"
    ):
        simulate(small(method="desa", attack="copy:1"))
    honest, lied = (
        simulate(small(method="desa", merge_every=0, rounds=5, eval_every=5, attack=attack))
        for attack in (None, "flip:1")
    )
    assert honest.parameters_sha256[0] != lied.parameters_sha256[0]
    assert honest.lines[-1].payload_bytes == lied.lines[-1].payload_bytes


def test_stacking_and_text_are_refused_and_auto_is_exact() -> None:
    with pytest.raises(ConfigError, match="--engine stacked: peers of --method desa look at other examples"):
        simulate(small(method="desa"), engine="stacked")
    run = simulate(small(method="desa", rounds=3, local_steps=1), engine="auto")
    assert run.provenance.engine == "exact"
    tokens = Arrays(torch.zeros(4, 8, dtype=torch.int64), torch.zeros(4, 8, dtype=torch.int64))
    with pytest.raises(ConfigError, match="the method desa makes examples, and can make none of text"):
        Anchors(Federation(method="desa"), tokens, 10, torch.Generator(), lambda raw: raw)


def test_images_are_made_as_the_model_reads_them() -> None:
    """Of bytes the anchors are what normalising makes of bytes: floats, which are not normalised again."""

    def halves(raw: Tensor) -> Tensor:
        return raw.float() / 128 if raw.dtype == torch.uint8 else raw

    x = torch.arange(6 * 4, dtype=torch.uint8).reshape(6, 1, 2, 2)
    images = Arrays(x, torch.tensor([0, 1, 0, 1, 0, 1]))
    one = Anchors(Federation(probes_per_round=2), images, 2, torch.Generator().manual_seed(0), halves)
    seen, _ = one.sample(1)
    assert seen.shape == (4, 1, 2, 2) and seen.dtype == torch.float32 and float(seen.max()) <= 23 / 128


def test_anchors_need_no_probes_and_no_public_labels() -> None:
    task = prepare(small(method="desa", probe_labels="hidden"))
    assert task.federation.alpha == prepare(small(method="fd")).federation.alpha
