"""The probes of a round: the same for all, without repeats, all alike in the long run; and what overlaps the test."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.errors import ConfigError
from p2p_tally.ids import derive_seed
from p2p_tally.learning.consensus import NO_LABEL
from p2p_tally.learning.data import Arrays
from p2p_tally.learning.data.probes import ProbePool, _draw, overlap

torch.set_num_threads(1)


def pool(size: int, per_round: int, seed: int = 0) -> ProbePool:
    """Probes whose input is their own number and whose label is that plus 100."""
    return ProbePool(Arrays(torch.arange(float(size))[:, None], torch.arange(size) + 100), per_round, seed)


def drawn(probes: ProbePool, round: int) -> list[int]:
    x, y = probes.sample(round)
    numbers = x.flatten().int().tolist()
    assert y is not None and y.tolist() == [number + 100 for number in numbers]
    return numbers


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.data(), st.integers(0, 2**63 - 1), st.integers(1, 10_000))
def test_a_sample_has_no_repeats_and_stays_in_range(size: int, data: st.DataObject, seed: int, round: int) -> None:
    per_round = data.draw(st.integers(1, size))
    sample = drawn(pool(size, per_round, seed), round)
    assert len(sample) == len(set(sample)) == per_round
    assert set(sample) <= set(range(size))
    assert drawn(pool(size, per_round, seed), round) == sample  # another peer, the same round


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.data(), st.integers(0, 2**63 - 1), st.integers(1, 10_000))
def test_the_draw_is_a_plain_shuffle_stopped_early(size: int, data: st.DataObject, seed: int, round: int) -> None:
    count = data.draw(st.integers(1, size))
    deck = list(range(size))
    raws = np.random.PCG64(derive_seed(seed, "probes", round)).random_raw(count)
    for place in range(count):
        other = place + int(raws[place]) * (size - place) // 2**64
        deck[place], deck[other] = deck[other], deck[place]
    assert _draw(size, count, seed, round).tolist() == deck[:count]


def test_the_draw_is_part_of_the_protocol() -> None:
    # Peers of different releases must draw alike: these numbers never change.
    assert _draw(200, 8, 0, 1).tolist() == GOLDEN_ROUND_1
    assert _draw(200, 8, 0, 2).tolist() == GOLDEN_ROUND_2


GOLDEN_ROUND_1 = [12, 68, 109, 117, 71, 147, 30, 183]
GOLDEN_ROUND_2 = [185, 69, 66, 29, 99, 175, 149, 88]


def test_rounds_and_seeds_differ() -> None:
    probes = pool(200, 16)
    samples = {tuple(drawn(probes, round)) for round in range(1, 101)}
    samples |= {tuple(drawn(pool(200, 16, seed), 1)) for seed in range(1, 101)}
    assert len(samples) == 200


def test_the_whole_pool_may_be_asked_for() -> None:
    assert sorted(drawn(pool(12, 12), 5)) == list(range(12))
    assert drawn(pool(1, 1), 1) == [0]


def test_all_probes_come_up_alike() -> None:
    # 2000 rounds of 5 from 20: each probe 500 times, standard deviation sqrt(2000 x 1/4 x 3/4) = 19.4;
    # as the first of a round 100 times, standard deviation sqrt(2000 x 1/20 x 19/20) = 9.7.
    samples = np.array([_draw(20, 5, 0, round).tolist() for round in range(1, 2001)])
    counts = np.bincount(samples.ravel(), minlength=20)
    assert np.abs(counts - 500).max() < 5 * 19.4
    first = np.bincount(samples[:, 0], minlength=20)
    assert np.abs(first - 100).max() < 5 * 9.7


def test_more_probes_than_the_pool_has_is_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        pool(15, 16)
    assert str(caught.value) == "--probes-per-round 16: accepted is at most the pool's 15 probes"


def test_labelled_and_votes() -> None:
    probes = pool(10, 4)
    assert probes.labelled
    assert probes.votes_per_round == 4
    bare = ProbePool(Arrays(torch.zeros(10, 2), None), 4, 0)
    assert not bare.labelled
    assert bare.sample(1)[1] is None


def test_an_example_of_many_positions_casts_many_votes() -> None:
    class Sequences(Arrays):
        @property
        def probes_each(self) -> int:
            return 256

    assert ProbePool(Sequences(torch.zeros(40, 256), torch.zeros(40, 256)), 32, 0).votes_per_round == 8192


def anchored(per_round: int, anchor_per_round: int, labels: torch.Tensor | None = None) -> ProbePool:
    """Thirty probes numbered from 0, and an anchor of ten labelled ones numbered from 500."""
    rest = Arrays(torch.arange(30.0)[:, None], labels)
    first = Arrays(torch.arange(500.0, 510.0)[:, None], torch.arange(10))
    return ProbePool(rest, per_round, 0, first, anchor_per_round)


def test_an_anchor_gives_every_sample_its_first_labelled_probes() -> None:
    probes = anchored(16, 4)
    assert probes.labelled
    assert probes.votes_per_round == 16
    x, y = probes.sample(3)
    numbers = x.flatten().int().tolist()
    assert y is not None
    assert y[:4].tolist() == [number - 500 for number in numbers[:4]]
    assert y[4:].tolist() == [NO_LABEL] * 12
    assert len(set(numbers)) == 16
    assert set(numbers[:4]) <= set(range(500, 510)) and set(numbers[4:]) <= set(range(30))
    assert anchored(16, 4).sample(3)[0].equal(x)
    assert not probes.sample(4)[0].equal(x)


def test_an_anchor_is_part_of_the_digest() -> None:
    plain = ProbePool(Arrays(torch.arange(30.0)[:, None], None), 16, 0)
    assert anchored(16, 4).digest() != plain.digest()


@pytest.mark.parametrize("anchor_per_round", [0, 11, 16, 17])
def test_an_anchor_of_the_wrong_size_is_one_line(anchor_per_round: int) -> None:
    with pytest.raises(ConfigError, match=rf"^--anchor-per-round {anchor_per_round}: accepted is [^\n]*$"):
        anchored(16, anchor_per_round)


def test_digest_tells_pools_apart() -> None:
    x, y = torch.arange(12.0).reshape(6, 2), torch.arange(6)
    digests = [
        ProbePool(Arrays(x, y), 2, 0).digest(),
        ProbePool(Arrays(x, y.flip(0)), 2, 0).digest(),
        ProbePool(Arrays(x.flip(0), y), 2, 0).digest(),
        ProbePool(Arrays(x, None), 2, 0).digest(),
        ProbePool(Arrays(x.reshape(3, 4), None), 2, 0).digest(),
        ProbePool(Arrays(x[:5], y[:5]), 2, 0).digest(),
    ]
    assert len(set(digests)) == len(digests)
    # The same probes reached another way are the same pool.
    assert ProbePool(Arrays(x.flip(0), y.flip(0)).subset(torch.arange(5, -1, -1)), 2, 0).digest() == digests[0]


def test_overlap_counts_probes_that_are_in_the_test_set() -> None:
    test = Arrays(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), None)
    probes = Arrays(torch.tensor([[3.0, 4.0], [4.0, 3.0], [1.0, 2.0], [3.0, 4.0], [5.0, 6.1]]), None)
    assert overlap(probes, test) == 3  # the repeated one counts twice: it is two probes
    assert overlap(probes.subset(torch.tensor([1, 4])), test) == 0
    assert overlap(probes, test.subset(torch.tensor([0]))) == 1


def test_overlap_of_different_shapes_is_none() -> None:
    assert overlap(Arrays(torch.zeros(2, 3), None), Arrays(torch.zeros(2, 4), None)) == 0
    assert overlap(Arrays(torch.zeros(2, 3), None), Arrays(torch.zeros(2, 3, dtype=torch.float64), None)) == 0
    assert overlap(Arrays(torch.zeros(2, 4), None), Arrays(torch.zeros(2, 2, 2), None)) == 2
