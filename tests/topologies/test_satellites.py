"""Who sees whom from orbit: by hand where the geometry is simple, and as a law where it is not."""

import math

import numpy as np
import pytest

from p2p_tally.topologies import TopologyError, build
from p2p_tally.topologies.satellites import EARTH_KM, furthest, in_sight, positions


def names(count: int) -> list[str]:
    return [f"node-{rank}" for rank in range(count)]


def test_one_plane_is_a_ring_where_each_sees_the_next_only() -> None:
    """Ten satellites in a plane are 36 degrees apart: the line between two comes as near as (R + h) cos 18 degrees to
    the centre. At 550 km that is 6,582 km, above the 6,451 of Earth and atmosphere; over two places it is 5,599."""
    assert 6921 * math.cos(math.radians(18)) > 6451 > 6921 * math.cos(math.radians(36))
    graph = build("satellites:1x550x4", names(10))
    for r in range(1, 6):
        assert graph.neighbours("node-0", r) == ("node-1", "node-9")
        assert graph.degrees(r) == (2,) * 10


def test_a_link_is_as_long_as_can_be_seen() -> None:
    """At 550 km the longest line that clears the atmosphere is 2 sqrt(6921^2 - 6451^2) = 5,013 km."""
    assert furthest(550) == pytest.approx(5013, abs=1)
    places = positions(60, 5, 550, 0.37)
    distance = np.linalg.norm(places[:, None] - places[None], axis=2)
    assert {tuple(pair) for pair in np.argwhere(np.triu(distance < furthest(550), 1)).tolist()} == set(in_sight(places))
    np.testing.assert_allclose(np.linalg.norm(places, axis=1), EARTH_KM + 550)


def test_planes_cross_and_part_and_the_orbit_repeats() -> None:
    graph = build("satellites:4x1200x12", names(32))
    assert graph.varies and graph.period == 12
    seen = [graph.neighbours("node-0", r) for r in range(1, 25)]
    assert seen[:12] == seen[12:] and len(set(seen)) > 1
    assert positions(32, 4, 1200, 1.0) == pytest.approx(positions(32, 4, 1200, 0.0), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("satellites:3", "accepted are three whole numbers, PLANESxKMxROUNDS"),
        ("satellites:3xkmx5", "accepted are three whole numbers, PLANESxKMxROUNDS"),
        ("satellites:5x550x5", "satellites:5x550x5 of 12: the number of members must be a multiple of the planes, 5"),
        ("satellites:0x550x5", "must be a multiple of the planes, 0"),
        ("satellites:1x80x5", "the altitude must be above 80 km, and the rounds from 1"),
        ("satellites:1x550x0", "the altitude must be above 80 km, and the rounds from 1"),
        ("satellites:2x200x3", "not connected: there is no path"),
        ("satellites", "is unknown; accepted: "),
    ],
)
def test_what_cannot_be_is_one_line(name: str, said: str) -> None:
    with pytest.raises(TopologyError) as caught:
        build(name, names(12))
    assert said in str(caught.value) and "\n" not in str(caught.value)
