"""Robust means: by hand, against NumPy, by laws, and against another library where it is installed."""

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from p2p_tally.defence import means
from p2p_tally.defence.rule import Rule, rule_for
from p2p_tally.learning.torchvision_import import import_torchvision

RULES = ("trim:2", "median", "clip", "nnm-trim:2")


def some(count: int, width: int, seed: int = 0, far: float = 0.0) -> list[np.ndarray]:
    """Members' vectors around a common model."""
    draw = np.random.default_rng(seed)
    common = draw.normal(size=width) * 10 + far
    return [(common + draw.normal(size=width)).astype(np.float32) for _ in range(count)]


def rule(option: str, members: int) -> Rule:
    found = rule_for(option, members)
    assert found is not None
    return found


@pytest.mark.parametrize(("count", "liars"), [(1, 0), (2, 1), (5, 1), (8, 2), (10, 4), (20, 7), (21, 9)])
def test_a_trimmed_mean_is_that_of_sorted_columns(count: int, liars: int) -> None:
    vectors = some(count, 40_001)
    cut = min(liars, (count - 1) // 2)
    wanted = np.sort(np.stack(vectors), 0)[cut : count - cut].mean(0, dtype=np.float64)
    assert_allclose(means.trimmed_mean(vectors, liars), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 30])
def test_a_median_is_numpys(count: int) -> None:
    vectors = some(count, 999)
    assert_allclose(means.median(vectors), np.median(np.stack(vectors), 0), rtol=1e-6, atol=1e-6)


def test_a_clipped_mean_pulls_the_further_half_to_the_radius() -> None:
    vectors = [np.float32([x, 0]) for x in (0, 0, 0, 3, 100)]
    assert means.clipped_mean(vectors).tolist() == [0, 0]  # the median of the distances is 0
    vectors = [np.float32([x, 0]) for x in (-1, 0, 0, 1, 100)]
    assert_allclose(means.clipped_mean(vectors), [0.2, 0])  # 100 counts as 1


def test_nearest_mixing_leaves_the_far_one_out() -> None:
    vectors = [np.float32([x]) for x in (0, 1, 2, 3, 1000)]
    assert_allclose(means.nearest_mixed_mean(vectors, 1), [1.5])


def test_clipped_gossip_limits_how_far_one_neighbour_pulls() -> None:
    own = np.float32([0, 0])
    others = [np.float32([1, 0]), np.float32([0, 2]), np.float32([0, 1e6])]
    assert_allclose(means.clipped_gossip(own, own, others, [0.25] * 3), [0.25, 1.0])
    assert means.clipped_gossip(own, own, [], []).tolist() == [0, 0]
    rounded = np.float32([0.5, 0])  # what was sent; the rest stays
    assert_allclose(means.clipped_gossip(own, rounded, [np.float32([1, 0])], [0.5]), [0.25, 0])


@pytest.mark.parametrize("option", RULES)
@pytest.mark.parametrize("lie", [1e30, -1e30, 100.0, -10.0])
def test_two_of_ten_that_send_absurd_values_move_a_mean_no_further_than_the_others_differ(
    option: str, lie: float
) -> None:
    honest = some(8, 5000)
    vectors = [*honest[:3], honest[3] * np.float32(lie), *honest[4:], honest[0] * np.float32(lie)]
    vectors = [vector.astype(np.float32) for vector in vectors]
    found = rule(option, 10).mean(vectors)
    assert np.isfinite(found).all()
    assert np.abs(found - np.mean(honest, 0)).max() < 3.0


@pytest.mark.parametrize("option", RULES)
@given(seed=st.integers(0, 10_000), count=st.integers(5, 12), scale=st.sampled_from([2.0**-20, 0.5, 2.0**20]))
def test_a_rule_follows_the_scale_of_what_it_is_given(option: str, seed: int, count: int, scale: float) -> None:
    vectors = some(count, 300, seed)
    once = rule(option, count).mean(vectors)
    assert once.dtype == np.float32
    assert_allclose(rule(option, count).mean([v * np.float32(scale) for v in vectors]), once * scale, rtol=1e-4)


def test_others_are_drawn_to_the_distance_of_the_nearer_half() -> None:
    """Distances 1, 2 and 10: the middle one is the radius. Vectors may be of different parts."""
    own = [np.zeros(1, np.float32), np.ones(2, np.float32), np.full(1, 5, np.float32)]
    others = [np.array([1.0], np.float32), np.array([3.0, 1.0], np.float32), np.array([15.0], np.float32)]
    assert [found.tolist() for found in means.nearer_half(own, others)] == [[1.0], [3.0, 1.0], [7.0]]
    assert means.nearer_half([], []) == []


@pytest.mark.parametrize("option", RULES)
def test_equal_vectors_have_themselves_as_mean(option: str) -> None:
    (vector,) = some(1, 777)
    assert_allclose(rule(option, 7).mean([vector] * 7), vector, rtol=1e-6)


@pytest.mark.parametrize("option", RULES)
@given(seed=st.integers(0, 10_000))
def test_the_order_of_members_changes_last_digits_at_most(option: str, seed: int) -> None:
    vectors = some(9, 500, seed)
    assert_allclose(rule(option, 9).mean(vectors[::-1]), rule(option, 9).mean(vectors), rtol=1e-4, atol=1e-4)


def test_a_rule_changes_nothing_that_it_is_given() -> None:
    for option in RULES:
        vectors = some(8, 300)
        before = [vector.copy() for vector in vectors]
        rule(option, 8).mean(vectors)
        assert all((one == other).all() for one, other in zip(vectors, before, strict=True))


@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_the_rules_agree_with_byzfl(far: float) -> None:
    if importlib.util.find_spec("byzfl") is None:
        pytest.skip("byzfl is not installed")
    import_torchvision("byzfl")  # which it imports, and which may need help
    byzfl = importlib.import_module("byzfl")
    for count in (5, 8, 10, 11):
        vectors = some(count, 700, count, far)
        stacked = np.stack(vectors)
        for liars in (1, 2):
            assert_allclose(means.trimmed_mean(vectors, liars), byzfl.TrMean(f=liars)(stacked), rtol=1e-4, atol=1e-4)
            mixed = byzfl.TrMean(f=liars)(byzfl.NNM(f=liars)(stacked))
            assert_allclose(means.nearest_mixed_mean(vectors, liars), mixed, rtol=1e-4, atol=1e-4)
        assert_allclose(means.median(vectors), byzfl.Median()(stacked), rtol=1e-4, atol=1e-4)
        centre = np.median(stacked, 0)
        radius = float(np.sort(np.linalg.norm(stacked - centre, axis=1))[(count - 1) // 2])
        clipped = byzfl.CenteredClipping(L=1, tau=radius)(stacked - centre) + centre  # it begins at 0
        assert_allclose(means.clipped_mean(vectors), clipped, rtol=1e-4, atol=1e-4)
