"""Generators as arrays give the numbers of torch's own generators, whoever draws when."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.runner.stacked.twisters import Twisters

SEEDS = [0, 5, 2**32 - 1, 2**32 + 7, 2**62 + 17]


def of_torch(seeds: list[int]) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


@given(
    seeds=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=4),
    draws=st.lists(
        st.tuples(st.integers(1, 700), st.integers(1, 2**28 - 4), st.sampled_from([0, 1, 2, 5, 15])), max_size=5
    ),
)
@settings(max_examples=40, deadline=None)
def test_whole_numbers_are_those_of_torch(seeds: list[int], draws: list[tuple[int, int, int]]) -> None:
    """Also where only some draw, so that the others fall behind: the bits of the third number say who. For 15 all."""
    ours, theirs = Twisters.seeded(seeds), of_torch(seeds)
    for count, limit, who in draws:
        rows = [row for row in range(len(seeds)) if who >> row & 1]
        limits = np.array([limit + row for row in rows], np.int64)
        found = ours.below(limits, count, None if who == 15 and len(rows) == len(seeds) else rows)
        for row, drawn in zip(rows, found, strict=True):
            expected = torch.empty(count, dtype=torch.int64).random_(0, limit + row, generator=theirs[row])
            assert drawn.tolist() == expected.tolist()


def test_two_words_are_a_large_number_of_torch() -> None:
    """What a learner draws to seed dropout takes two words."""
    high, low = Twisters.seeded(SEEDS).words(2).astype(object)
    drawn = [int(torch.randint(2**62, (), generator=generator)) for generator in of_torch(SEEDS)]
    assert [((one << 32) | other) % 2**62 for one, other in zip(high, low, strict=True)] == drawn


def test_uniform_numbers_are_those_of_torch() -> None:
    bounds = np.repeat([0.125, 1 / 3, 0.17677669, 1e-3], 500)
    found = Twisters.seeded(SEEDS).uniform(bounds)
    for row, generator in zip(found, of_torch(SEEDS), strict=True):
        parts = [torch.empty(500).uniform_(-bound, bound, generator=generator) for bound in bounds[::500].tolist()]
        assert row.tobytes() == torch.cat(parts).numpy().tobytes()


def test_a_restored_state_draws_the_same() -> None:
    ours = Twisters.seeded(SEEDS)
    ours.words(3, [1, 4])
    kept, again = ours.state(), Twisters.seeded([0] * len(SEEDS))
    again.restore(kept)
    np.testing.assert_array_equal(again.words(900), ours.words(900))
    np.testing.assert_array_equal(ours.part(slice(1, 3)).words(5), ours.words(5)[:, 1:3])
