"""The learner: Algorithm 1 against a literal one in plain torch, each method's own step by hand, exact resume."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.learning import evaluation as module
from p2p_tally.learning import merging, parameters
from p2p_tally.learning.answers import soft_labels, top_k, votes
from p2p_tally.learning.consensus import NO_LABEL, Answer
from p2p_tally.learning.data import Arrays
from p2p_tally.learning.data.probes import ProbePool
from p2p_tally.learning.evaluation import evaluation_batch
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.methods import METHODS, method_of
from p2p_tally.learning.schedule import Channel, channel, merges, resolve

torch.set_num_threads(1)

CLASSES, SIZE = 4, 6


class Recorded(Arrays):
    """Examples that remember what was taken."""

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor | None]:
        TAKEN.append(indices.tolist())
        return super().take(indices)


TAKEN: list[list[int]] = []


def blobs(seed: int, count: int, labelled: bool = True) -> Arrays:
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (count,), generator=random)
    x = torch.randn(count, SIZE, generator=random) + F.one_hot(y, SIZE)
    return Arrays(x, y if labelled else None)


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(SIZE, 5), nn.Tanh(), nn.Linear(5, CLASSES))


def line(*weights: float) -> nn.Linear:
    """Logits W x for two inputs and two classes, W row by row; two digits of arithmetic are enough to follow it."""
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(weights or (0.0,) * 4).reshape(2, 2))
    return model


def federation(labelled: bool = True, **options: object) -> Federation:
    defaults: dict[str, object] = {"rounds": 100, "probes_per_round": 8, "batch": 4, "local_steps": 2, "lr": 0.01}
    return resolve(Federation.parse(defaults | options), labelled=labelled)


def make(rank: int = 0, model: nn.Module | None = None, private: Arrays | None = None, **options: object) -> Learner:
    settings = federation(**options)
    return Learner(
        NodeName(f"node-{rank}"),
        settings,
        network(rank) if model is None else model,
        CLASSES,
        blobs(100 + rank, 30) if private is None else private,
        ProbePool(blobs(1, 20), 8, 0),
        blobs(2, 25),
        second=None if method_of(settings).second is None else network(rank + 50),
    )


def tiny(
    model: nn.Module,
    x: list[list[float]],
    y: list[int],
    probes: list[list[float]] | None = None,
    labels: list[int] | None = None,
    rank: int = 0,
    **options: object,
) -> Learner:
    """A learner of two inputs and two classes whose every batch is all of its private examples, or a repeat of one."""
    private = Arrays(torch.tensor(x), torch.tensor(y))
    public = (
        private if probes is None else Arrays(torch.tensor(probes), None if labels is None else torch.tensor(labels))
    )
    given: dict[str, object] = {"local_steps": 1, "batch": 1, "weight_decay": 0.0, "probes_per_round": len(public)}
    settings = federation(labelled=public.y is not None, **(given | options))
    pool = ProbePool(public, settings.probes_per_round, settings.seed)
    return Learner(NodeName(f"node-{rank}"), settings, model, 2, private, pool, private)


def play(peers: list[Learner], r: int) -> None:
    """Round r for all peers of a full mesh, in the order of node.py."""
    settings = peers[0].federation
    assert isinstance(settings.warmup, int)
    now = channel(settings, r, settings.warmup)
    merged_first = method_of(settings).distils_merged
    for peer in peers:
        peer.train()
    answers = [peer.vote(r) for peer in peers] if now.trains else []
    if now.trains and not merged_first:
        for peer in peers:
            peer.distill(r, answers, now)
    if merges(settings, r):
        average = merging.mean([peer.contribution(r) for peer in peers])
        exchange = method_of(settings).exchange
        if exchange is not None and exchange.returns_kept:  # here everything travels
            average = np.concatenate([average, np.zeros_like(average)])
        for peer in peers:
            peer.merge(average)
    if now.trains and merged_first:
        for peer in peers:
            peer.distill(r, answers, now)


def shas(peers: list[Learner]) -> list[str]:
    return [peer.parameters.sha256() for peer in peers]


# --- Algorithm 1


@pytest.mark.parametrize(
    "options",
    [
        {"method": "tally", "alpha": 0.4},
        {"method": "tally", "alpha": 0.0, "kl_decay": 3},
        {"method": "tally", "alpha": 0.4, "disagreement_weight": 2.0, "inverse_agreement": 0.5},
        {"method": "fedmd", "alpha": 0.5},
        {"method": "rcfd", "alpha": 0.5, "top_k": 2},
        {"method": "no-consensus", "merge_every": 3},
        {"method": "fedavg"},
        {"method": "local"},
    ],
    ids=lambda options: "-".join(str(value) for value in options.values()),
)
def test_rounds_are_algorithm_1_read_aloud(options: dict[str, object]) -> None:
    """Three peers, five rounds, W = 1, M = 3: the learner against plain models, torch's AdamW and the literal loss."""
    options = {"warmup": 1, "merge_every": 3, "weight_decay": 0.1} | options
    shards = [Recorded(*vars(blobs(100 + rank, 30)).values()) for rank in range(3)]
    peers = [make(rank, private=shards[rank], **options) for rank in range(3)]
    settings = peers[0].federation
    models = [network(rank) for rank in range(3)]
    optimisers = [torch.optim.AdamW(m.parameters(), lr=0.01, weight_decay=0.1, foreach=False) for m in models]
    for r in range(1, 6):
        TAKEN.clear()
        play(peers, r)
        drawn = [index for indices in TAKEN for index in indices]
        assert len(drawn) == 3 * 2 * 4  # N x K x the batch

        for model, optimiser, shard in zip(models, optimisers, shards, strict=True):
            for _ in range(2):  # K
                indices, drawn = drawn[:4], drawn[4:]
                optimiser.zero_grad()
                F.cross_entropy(model(shard.x[indices]), shard.y[indices]).backward()
                optimiser.step()
        if r > 1 and method_of(settings).learns_from_probes:
            x, y = peers[0].probes.sample(r)
            logits = [model(x) for model in models]
            target = literal_target([one.detach() for one in logits], settings)
            fade = max(0.0, 1 - (r - 1) / settings.kl_decay) if settings.kl_decay else 1.0
            factor = 1 + settings.disagreement_weight * (1 - target.amax(-1))
            for one, optimiser in zip(logits, optimisers, strict=True):
                divergence = F.kl_div(one.log_softmax(-1), target, reduction="none").sum(-1)
                alpha = settings.alpha
                assert alpha is not None
                if fade == 0 and alpha == 0:
                    continue
                optimiser.zero_grad()
                loss = alpha * F.cross_entropy(one, y) + fade * (1 - alpha) * (factor * divergence).mean()
                loss.backward()
                optimiser.step()
        if r == 3 and settings.merge_every:
            mean = torch.stack([nn.utils.parameters_to_vector(m.parameters()).detach() for m in models]).mean(0)
            for model in models:
                nn.utils.vector_to_parameters(mean.clone(), model.parameters())
    for peer, model in zip(peers, models, strict=True):
        expected = nn.utils.parameters_to_vector(model.parameters()).detach()
        torch.testing.assert_close(peer.parameters.vector, expected, rtol=1e-4, atol=2e-5)


def literal_target(logits: list[Tensor], settings: Federation) -> Tensor:
    """The consensus [P, C] of three peers, one probe at a time."""
    rows = []
    for probe in range(len(logits[0])):
        row = torch.zeros(CLASSES)
        for rank, one in enumerate(logits):
            f = one[probe].softmax(-1)
            if settings.method == "tally":
                weight = 1 / 3
                if settings.inverse_agreement:
                    weight = 0.5 / 3 + 0.5 * dissent(logits)[rank]
                row[f.argmax()] += weight
            elif settings.method == "rcfd":
                kept = f.argsort(descending=True)[: settings.top_k]
                row[kept] += f[kept] / f[kept].sum() / 3
            else:
                row += f / 3
        rows.append(row)
    return torch.stack(rows)


def dissent(logits: list[Tensor]) -> list[float]:
    """Each peer's share of all votes against the plurality; a third each where there are none."""
    votes = torch.stack([one.argmax(-1) for one in logits]).tolist()  # [N, P]
    against = [0, 0, 0]
    for column in zip(*votes, strict=True):
        plurality = max(range(CLASSES), key=lambda label: (column.count(label), -label))
        for rank, vote in enumerate(column):
            against[rank] += vote != plurality
    return [count / sum(against) if sum(against) else 1 / 3 for count in against]


@pytest.mark.parametrize("method", METHODS)
def test_the_same_federation_gives_the_same_bits(method: str) -> None:
    def run() -> list[str]:
        peers = [make(rank, method=method, warmup=1, merge_every=2) for rank in range(2)]
        for r in range(1, 5):
            play(peers, r)
        return shas(peers)

    torch.manual_seed(1)
    once = run()
    torch.manual_seed(2)  # nothing reads global randomness
    assert run() == once


@pytest.mark.parametrize("options", [{"method": "tally"}, {"method": "fedprox", "mu": 0.5}, {"clip": 0.1}], ids=str)
def test_a_large_models_gradient_in_pieces_gives_the_same_rounds(
    options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[Tensor]:
        peers = [make(rank, warmup=1, merge_every=2, **options) for rank in range(2)]
        for r in range(1, 5):
            play(peers, r)
        return [peer.parameters.vector for peer in peers]

    flat = run()
    monkeypatch.setattr(parameters, "LARGE", 1)
    assert make().parameters.gradient is None
    for found, expected in zip(run(), flat, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_name_and_seed_choose_the_batches() -> None:
    def trained(rank: int, seed: int) -> str:
        peer = make(rank, network(0), blobs(7, 30), seed=seed)
        peer.train()
        return peer.parameters.sha256()

    assert trained(0, 0) == trained(0, 0)
    assert len({trained(0, 0), trained(1, 0), trained(0, 1)}) == 3


def test_one_forward_pass_serves_vote_and_distillation() -> None:
    for method, expected in (("tally", 1), ("feddf", 2)):  # FedDF's student is another model than the voter
        peer = make(method=method, warmup=0)
        passes: list[int] = []
        peer.model.register_forward_hook(lambda *_, passes=passes: passes.append(1))
        own = peer.vote(1)
        peer.distill(1, [own], Channel(0.0, 1.0))
        assert len(passes) == expected


def test_distilling_twice_on_one_vote_is_our_own_fault() -> None:
    peer = make(warmup=0)
    own = peer.vote(1)
    peer.distill(1, [own], Channel(0.5, 0.5))
    with pytest.raises(AssertionError, match="distill follows vote"):
        peer.distill(1, [own], Channel(0.5, 0.5))


def test_labels_alone_need_no_answers_and_a_consensus_alone_no_labels() -> None:
    labels_only = make(method="no-consensus", warmup=0)
    labels_only.vote(1)
    before = labels_only.parameters.sha256()
    labels_only.distill(1, [], Channel(1.0, 0.0))
    assert labels_only.parameters.sha256() != before

    bare = tiny(line(1, 0, 0, 0), [[1.0, 0.0]], [0], [[1.0, 0.0]], None, method="tally", warmup=0)
    bare.vote(1)
    bare.distill(1, [np.array([1])], Channel(0.0, 1.0))
    # f = softmax(1, 0) = (0.731, 0.269), H = (0, 1): the gradient on the first column is (0.731, -0.731).
    torch.testing.assert_close(
        bare.parameters.gradient, torch.tensor([0.731059, 0.0, -0.731059, 0.0]), rtol=1e-5, atol=1e-6
    )


# --- answers

# softmax of ln(1, 2, 5): 1/8, 2/8, 5/8; of ln(6, 3, 1): 6/10, 3/10, 1/10
ANSWERED = torch.tensor([[1.0, 2.0, 5.0], [6.0, 3.0, 1.0]]).log()


def test_votes_are_the_argmax() -> None:
    found = votes(ANSWERED, Federation())
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [2, 0]


def test_soft_labels_are_the_softmax() -> None:
    soft = soft_labels(ANSWERED, Federation())
    assert isinstance(soft, np.ndarray) and soft.dtype == np.float32
    np.testing.assert_allclose(soft, [[0.125, 0.25, 0.625], [0.6, 0.3, 0.1]], rtol=1e-6)


def test_top_k_is_cut_and_made_to_sum_to_one() -> None:
    classes, probabilities = top_k(ANSWERED, Federation(top_k=2))
    assert classes.tolist() == [[2, 1], [0, 1]]
    # 5/8 and 2/8 become 5/7 and 2/7; 6/10 and 3/10 become 2/3 and 1/3.
    np.testing.assert_allclose(probabilities, [[5 / 7, 2 / 7], [2 / 3, 1 / 3]], rtol=1e-6)
    assert probabilities.dtype == np.float32


def test_top_1_is_a_certainty_and_top_c_the_whole_distribution() -> None:
    classes, probabilities = top_k(ANSWERED, Federation(top_k=1))
    assert classes.tolist() == [[2], [0]]
    assert probabilities.tolist() == [[1.0], [1.0]]
    classes, probabilities = top_k(ANSWERED, Federation(top_k=3))
    whole = np.zeros((2, 3))
    np.put_along_axis(whole, classes, probabilities, axis=1)
    np.testing.assert_allclose(whole, soft_labels(ANSWERED, Federation()), rtol=1e-6)


@pytest.mark.parametrize(
    ("method", "answer"), [("tally", votes), ("no-consensus", votes), ("fedmd", soft_labels), ("rcfd", top_k)]
)
def test_a_vote_is_the_answer_for_the_rounds_probes(method: str, answer: Callable[..., Answer]) -> None:
    peer = make(method=method, top_k=2)
    expected = answer(peer.log_probabilities(peer.probes.sample(3)[0]), peer.federation)
    for found, wanted in zip(np.atleast_2d(peer.vote(3)), np.atleast_2d(expected), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


# --- what only some methods do


def test_proximal_step_by_hand() -> None:
    # The private input is 0, so cross-entropy has no gradient and only mu (w - anchor) is left. Away from the anchor
    # by (0.5, -0.25, 0, 1), mu = 0.2: gradient (0.1, -0.05, 0, 0.2). AdamW's first step is lr g / |g|, lr = 0.01.
    peer = tiny(line(1, 2, 3, 4), [[0.0, 0.0]], [0], method="fedprox", mu=0.2)
    offset = torch.tensor([0.5, -0.25, 0.0, 1.0])
    peer.parameters.vector.add_(offset)
    peer.train()
    torch.testing.assert_close(peer.parameters.gradient, torch.tensor([0.1, -0.05, 0.0, 0.2]))
    expected = torch.tensor([1.5 - 0.01, 1.75 + 0.01, 3.0, 5.0 - 0.01])
    torch.testing.assert_close(peer.parameters.vector, expected, rtol=1e-6, atol=1e-6)


def test_proximal_term_is_added_to_the_gradient_of_the_data() -> None:
    def gradient(mu: float) -> Tensor:
        peer = tiny(line(1, 2, 3, 4), [[1.0, -1.0]], [1], method="fedprox", mu=mu)
        peer.parameters.vector.add_(torch.tensor([1.0, 2.0, -1.0, 0.0]))
        peer.train()
        return peer.parameters.gradient.clone()

    torch.testing.assert_close(gradient(0.3) - gradient(0.0), torch.tensor([0.3, 0.6, -0.3, 0.0]), rtol=1e-5, atol=1e-6)


def test_the_proximal_anchor_moves_at_merges_only() -> None:
    peer = tiny(line(1, 2, 3, 4), [[0.0, 0.0]], [0], method="fedprox", mu=0.5)
    assert peer.anchor is not None
    peer.parameters.vector.add_(1.0)
    peer.train()
    assert peer.anchor.tolist() == [1, 2, 3, 4]
    peer.merge(np.array([5, 6, 7, 8], dtype=np.float32))
    assert peer.anchor.tolist() == [5, 6, 7, 8]
    peer.train()  # at the anchor nothing pulls
    assert peer.parameters.gradient.tolist() == [0, 0, 0, 0]
    assert peer.anchor.tolist() == [5, 6, 7, 8]


def test_feddf_on_two_peers_by_hand() -> None:
    # One probe (1, 0), so the first column of W are the logits.
    #   peer 0: (ln 3, 0) says (3/4, 1/4); peer 1: (0, 0) says (1/2, 1/2); their mean is (5/8, 3/8).
    #   The merged model has logits (ln 3 / 2, 0): softmax (s, 1 - s) with s = sqrt 3 / (1 + sqrt 3) = 0.63397.
    #   The student's gradient there is (s - 5/8, 5/8 - s) = (0.00897, -0.00897); AdamW's first step is lr = 0.01
    #   against its sign, whatever the peers' own optimisers hold.
    ln3 = math.log(3)
    probes = [[1.0, 0.0]]
    peers = [
        tiny(line(ln3, 0.2, 0, 0.4), [[0.0, 1.0]], [0], probes, None, rank=0, method="feddf"),
        tiny(line(0, 0.6, 0, 0.8), [[0.0, 1.0]], [1], probes, None, rank=1, method="feddf"),
    ]
    said = [peer.vote(1) for peer in peers]
    np.testing.assert_allclose(said[0], [[0.75, 0.25]], rtol=1e-6)
    np.testing.assert_allclose(said[1], [[0.5, 0.5]], rtol=1e-6)
    average = merging.mean([peer.export() for peer in peers])
    np.testing.assert_allclose(average, [ln3 / 2, 0.4, 0, 0.6], rtol=1e-6)
    s = math.sqrt(3) / (1 + math.sqrt(3))
    for peer in peers:
        peer.merge(average)
        peer.distill(1, said, Channel(0.0, 1.0))
        torch.testing.assert_close(
            peer.parameters.gradient, torch.tensor([s - 0.625, 0, 0.625 - s, 0]), rtol=1e-4, atol=1e-7
        )
        torch.testing.assert_close(
            peer.parameters.vector, torch.tensor([ln3 / 2 - 0.01, 0.4, 0.01, 0.6]), rtol=1e-5, atol=1e-5
        )
    assert len(set(shas(peers))) == 1


def test_feddf_peers_stay_one_model_to_the_bit() -> None:
    peers = [make(rank, method="feddf") for rank in range(2)]
    assert len(set(shas(peers))) == 2  # they begin apart
    for r in range(1, 6):
        play(peers, r)
        assert len(set(shas(peers))) == 1
    # Their own optimisers have seen different data; only the student's has not.
    own, other = (peer.snapshot() for peer in peers)
    assert not torch.equal(own["optimiser.mean"], other["optimiser.mean"])
    assert torch.equal(own["student.mean"], other["student.mean"])
    assert own["student.step"].item() == 5


def test_diloco_takes_the_outer_step() -> None:
    # lr 1/2, momentum 1/2, from 8: as worked out in test_merging, the means 4 and 2 lead to 5 and 2.25.
    peer = tiny(line(8, 8, 8, 8), [[0.0, 1.0]], [0], method="diloco", outer_lr=0.5, outer_momentum=0.5)
    peer.merge(np.full(4, 4, dtype=np.float32))
    assert peer.parameters.vector.tolist() == [5.0] * 4
    peer.train()  # moves the model, not the outer state
    assert peer.parameters.vector.tolist() != [5.0] * 4
    peer.merge(np.full(4, 2, dtype=np.float32))
    assert peer.parameters.vector.tolist() == [2.25] * 4


def test_training_after_an_outer_step_does_not_write_into_the_outer_state() -> None:
    peer = make(method="diloco")
    peer.merge(peer.export() + np.float32(1))
    anchor = peer.snapshot()["outer.anchor"]
    peer.train()
    assert torch.equal(peer.snapshot()["outer.anchor"], anchor)


def test_disagreement_weight_scales_the_step_by_hand() -> None:
    # One probe (1, 0), f = (1/2, 1/2); votes 0, 0, 1, 0: H = (3/4, 1/4). b = 2: factor 1 + 2 x 1/4 = 3/2.
    # Gradient 3/2 x (f - H) = (-3/8, 3/8) on the first column.
    peer = tiny(line(), [[1.0, 0.0]], [0], [[1.0, 0.0]], None, method="tally", warmup=0, disagreement_weight=2.0)
    peer.vote(1)
    peer.distill(1, [np.array([vote]) for vote in (0, 0, 1, 0)], Channel(0.0, 1.0))
    torch.testing.assert_close(peer.parameters.gradient, torch.tensor([-0.375, 0, 0.375, 0]))


# --- merging


@pytest.mark.parametrize("method", ["tally", "fedavg", "fedprox", "feddf", "diloco"])
def test_a_merge_leaves_the_optimiser_alone(method: str) -> None:
    peer = make(method=method, warmup=0, outer_lr=1.0, outer_momentum=0.0)
    peer.train()
    before = {key: value for key, value in peer.snapshot().items() if key.startswith(("optimiser", "student"))}
    assert before["optimiser.step"].item() == 2
    average = np.linspace(-1, 1, len(peer.parameters), dtype=np.float32)
    peer.merge(average)
    after = peer.snapshot()
    for key, value in before.items():
        assert torch.equal(after[key], value)
    np.testing.assert_allclose(peer.export(), average, rtol=1e-5, atol=1e-6)


def test_a_merge_reaches_the_model() -> None:
    peer = tiny(line(), [[1.0, 0.0]], [0], method="fedavg")
    peer.merge(np.array([1, 2, 3, 4], dtype=np.float32))
    assert peer.model.weight.tolist() == [[1, 2], [3, 4]]


# --- gradients that are too large, or no numbers


@pytest.mark.parametrize(
    ("clip", "scale"),
    # f = (1/2, 1/2) and input (4, 0) of class 0: gradient ((-2, 0), (2, 0)), norm sqrt 8.
    [(0.0, 1.0), (5.0, 1.0), (1.0, 1 / math.sqrt(8)), (0.5, 0.5 / math.sqrt(8))],
)
def test_clipping_by_hand(clip: float, scale: float) -> None:
    peer = tiny(line(), [[4.0, 0.0]], [0], method="local", clip=clip)
    peer.train()
    expected = torch.tensor([-2.0, 0.0, 2.0, 0.0]) * scale
    torch.testing.assert_close(peer.parameters.gradient, expected, rtol=1e-5, atol=1e-6)


def test_with_clipping_a_gradient_that_is_nan_counts_as_zero() -> None:
    peer = tiny(line(1, 2, 3, 4), [[math.nan, 0.0]], [0], method="local", clip=1.0)
    peer.train()
    assert peer.parameters.gradient.tolist() == [0, 0, 0, 0]
    assert peer.parameters.vector.tolist() == [1, 2, 3, 4]


# --- looking


def test_evaluation_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # Logits are the inputs: f = (3/4, 1/4) three times and (1/4, 3/4) once, labels 0, 0, 1, 1: three right.
    # Loss (3 ln 4/3 + ln 4) / 4.
    ln3 = math.log(3)
    peer = tiny(line(1, 0, 0, 1), [[ln3, 0.0], [ln3, 0.0], [ln3, 0.0], [0.0, ln3]], [0, 0, 1, 1])
    for batch in (1024, 3, 1):  # however the test set is cut
        monkeypatch.setattr(module, "EVALUATION_BATCH", batch)
        found = peer.evaluate()
        assert found.accuracy == 0.75
        assert found.loss == pytest.approx((3 * math.log(4 / 3) + math.log(4)) / 4, rel=1e-6)
        assert found.own == 0.75  # class 0: two of two, class 1: one of two; the peer has as many of each


@pytest.mark.parametrize(
    ("shape", "positions", "batch"), [((64,), 1, 1024), ((3, 32, 32), 1, 341), ((256,), 256, 4), ((2000, 2000), 1, 1)]
)
def test_a_batch_of_the_test_set_is_bounded_by_predictions_and_by_inputs(
    shape: tuple[int, ...], positions: int, batch: int
) -> None:
    class Few(Arrays):
        probes_each = positions  # type: ignore[assignment]

    assert evaluation_batch(Few(torch.zeros(2, *shape), torch.zeros(2))) == batch


def test_looking_changes_nothing() -> None:
    peer = make(warmup=0)
    peer.train()
    before = peer.snapshot()
    peer.evaluate()
    peer.probe_accuracy(1)
    peer.log_probabilities(peer.probes.sample(1)[0])
    after = peer.snapshot()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_probe_accuracy_by_hand() -> None:
    # Logits are the inputs: votes 0, 1, 1 in some order against labels 0, 1, 0.
    probes, labels = [[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]], [0, 1, 0]
    peer = tiny(line(1, 0, 0, 1), [[0.0, 0.0]], [0], probes, labels)
    assert peer.probe_accuracy(1) == (2, 3)


def test_probe_accuracy_counts_labelled_probes_only() -> None:
    probes, labels = [[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]], [0, 1, NO_LABEL]
    peer = tiny(line(1, 0, 0, 1), [[0.0, 0.0]], [0], probes, labels)
    assert peer.probe_accuracy(1) == (2, 2)


def test_log_probabilities_by_hand() -> None:
    peer = tiny(line(1, 0, 0, 1), [[0.0, 0.0]], [0])
    found = peer.log_probabilities(torch.tensor([[math.log(3), 0.0]]))
    assert not found.requires_grad
    torch.testing.assert_close(found, torch.tensor([[0.75, 0.25]]).log())


# --- resume

RESUMED = {
    "tally": {"warmup": 1, "merge_every": 2},
    "fedprox": {"merge_every": 2, "mu": 0.5},
    "diloco": {"merge_every": 2},
    "feddf": {},
    "fedmd": {"warmup": 1},
    "rcfd": {"warmup": 1},
}


@pytest.mark.parametrize("method", RESUMED)
def test_resume_is_exact(method: str) -> None:
    """Three rounds, a snapshot, three more; and the same three from the snapshot in learners made anew."""
    options = {"method": method} | RESUMED[method]
    peers = [make(rank, **options) for rank in range(2)]
    for r in (1, 2, 3):
        play(peers, r)
    kept = [peer.snapshot() for peer in peers]
    at_three = shas(peers)
    for r in (4, 5, 6):
        play(peers, r)
    at_six = shas(peers)
    assert at_six != at_three

    fresh = [make(rank, network(50 + rank), **options) for rank in range(2)]
    play(fresh, 1)  # whatever they hold is replaced
    for peer, state in zip(fresh, kept, strict=True):
        peer.restore(state)
    assert shas(fresh) == at_three
    for r in (4, 5, 6):
        play(fresh, r)
    assert shas(fresh) == at_six
    for peer, other in zip(peers, fresh, strict=True):
        one, two = peer.snapshot(), other.snapshot()
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key], two[key]) for key in one)


def test_a_snapshot_is_a_copy() -> None:
    peer = make(method="diloco", merge_every=2)
    kept = peer.snapshot()
    copies = {key: value.clone() for key, value in kept.items()}
    peer.train()
    peer.merge(peer.export() * np.float32(0.5))
    assert all(torch.equal(kept[key], copies[key]) for key in kept)


def test_a_snapshot_names_what_it_holds() -> None:
    common = {"parameters", "generator", "optimiser.step", "optimiser.mean", "optimiser.square"}
    more = {
        "fedprox": {"anchor"},
        "diloco": {"outer.anchor", "outer.velocity"},
        "feddf": {"student.step", "student.mean", "student.square"},
        "gflat": {"outer.last", "outer.uphill"},
        "spod-gt": {"outer.model", "outer.tracker", "outer.change"},
        "dfml": {"outer.peak", "outer.merges"},
        "fedkd": {f"outer.{part}" for part in ("base", "mentor", "mean", "square", "steps")},
        "fedspd": {f"outer.{part}" for part in ("first", "second", "chosen", "counts", "mixture", "credit", "merges")},
        "desa": {"subject.known", "subject.told"},
    }
    for method in METHODS:
        assert set(make(method=method).snapshot()) == common | more.get(method, set())
    coded = make(method="tally", merge_every=2, merge_precision="int8").snapshot()
    assert set(coded) == common | {"feedback.base", "feedback.residual"}
    assert set(make(method="tally", merge_every=0, merge_precision="int8").snapshot()) == common


# --- known gaps, each a test that turns red when it is closed


def with_dropout() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(SIZE, 32), nn.Dropout(0.5), nn.Linear(32, CLASSES))


def test_evaluation_of_a_model_with_dropout_is_one_number() -> None:
    peer = make(model=with_dropout())
    torch.manual_seed(0)
    assert peer.evaluate() == peer.evaluate()


def test_training_a_model_with_dropout_follows_the_seed() -> None:
    found = []
    for outside in (1, 2):
        peer = make(model=with_dropout())
        torch.manual_seed(outside)
        peer.train()
        found.append(peer.parameters.sha256())
    assert found[0] == found[1]
