"""What votes and merges cost on a graph, as `p2p-tally topology` says it."""

import pytest

from p2p_tally.ids import ranked_names
from p2p_tally.runner.console.topology import merge_bytes, mesh_cheaper_until, vote_bytes
from p2p_tally.topologies import Hops, build


@pytest.mark.parametrize(
    ("name", "count", "votes", "merge"),
    [
        ("mesh", 8, 7 * 100, 2 * 7 / 8 * 4 * 1000),
        ("mesh", 2, 100, 4000),
        ("mesh", 1, 0, 0),
        ("ring", 8, 200, 8000),
        ("star", 8, 14 / 8 * 100, 14 / 8 * 4000),
        ("gossip", 8, 300, 12000),
        ("one-peer-exponential", 8, 100, 4000),
        ("matchings", 9, 8 / 9 * 100, 8 / 9 * 4000),
        ("gossip-k:5", 8, 300, 12000),
    ],
)
def test_bytes_that_a_peer_sends(name: str, count: int, votes: float, merge: float) -> None:
    topology = build(name, ranked_names(count))
    assert vote_bytes(topology, 1, probes=100, classes=10) == pytest.approx(votes)
    assert vote_bytes(topology, 1, probes=100, classes=1000) == pytest.approx(2 * votes)  # two bytes a vote
    assert merge_bytes(topology, parameters=1000) == pytest.approx(merge)


@pytest.mark.parametrize(("hops", "hearers"), [(1, 2), (2, 4), (3, 6), ("all", 7)])
def test_a_vote_is_sent_once_to_everyone_within_reach(hops: Hops, hearers: int) -> None:
    assert vote_bytes(build("ring", ranked_names(8)), hops, probes=16, classes=10) == 16 * hearers


def test_nothing_costs_nothing() -> None:
    ring = build("ring", ranked_names(8))
    assert (vote_bytes(ring, 1, 0, 10), merge_bytes(ring, 0)) == (0, 0)


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_where_a_mesh_of_votes_costs_as_much_as_a_star_of_soft_labels(classes: int) -> None:
    count = mesh_cheaper_until(classes)
    assert count == 4 * classes + 1
    soft_labels = 4 * classes * 100  # a float a class and probe, to the hub
    assert vote_bytes(build("mesh", ranked_names(count)), 1, probes=100, classes=classes) == soft_labels
    assert vote_bytes(build("mesh", ranked_names(count - 1)), 1, probes=100, classes=classes) < soft_labels
