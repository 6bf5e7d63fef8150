"""What is drawn from the federation's seed, and what does not go with a method that has an exchange of its own."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.exchanges.exchange import both_ways, drawn_below, drawn_places, hears, one_way, pieces, tells
from p2p_tally.learning.exchanges.local_steps import sporadic_step
from p2p_tally.learning.exchanges.spod_gt import TRACKING
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.methods import METHODS, Method
from p2p_tally.topologies import build


def test_a_chance_is_met_about_as_often_as_it_says() -> None:
    for chance in (0.1, 0.5, 0.9):
        met = sum(drawn_below(chance, 7, "x", place) for place in range(4000))
        assert abs(met / 4000 - chance) < 0.03
    assert all(drawn_below(1.0, 7, "x", place) for place in range(100))


def test_a_link_is_drawn_for_both_directions_or_for_each() -> None:
    federation = Federation(links_used=0.5)
    both = [(both_ways(federation, "a", "b", r), both_ways(federation, "b", "a", r)) for r in range(200)]
    assert {there == back for there, back in both} == {True} and len(set(both)) == 2
    each = {(one_way(federation, "a", "b", r), one_way(federation, "b", "a", r)) for r in range(200)}
    assert len(each) == 4
    steps = {sporadic_step(Federation(steps_taken=0.5), "a", r, k) for r in range(10) for k in range(2)}
    assert steps == {True, False}


@given(share=st.floats(0.001, 1), length=st.integers(1, 400), seed=st.integers(0, 100))
def test_places_are_a_share_of_a_run_each_once(share: float, length: int, seed: int) -> None:
    places = drawn_places(share, length, seed, "places", 3)
    assert len(places) == min(length, max(1, int(np.ceil(share * length))))
    assert (np.diff(places) > 0).all() and places[0] >= 0 and places[-1] < length


def test_every_machine_draws_the_same_places() -> None:
    assert drawn_places(0.3, 10, 0, "places", 1).tolist() == [4, 5, 8]
    assert drawn_places(0.3, 10, 0, "places", 2).tolist() != drawn_places(0.3, 10, 0, "places", 1).tolist()


def test_no_run_belongs_to_two_vectors() -> None:
    cut = list(
        pieces(
            5,
            2,
            lambda whole: [slice(start, min(start + 3, whole.stop)) for start in range(whole.start, whole.stop, 3)],
        )
    )
    assert [(one.part, one.run.start, one.run.stop, one.vector) for one in cut] == [
        (0, 0, 3, 0), (1, 3, 5, 0), (2, 5, 8, 1), (3, 8, 10, 1),
    ]  # fmt: skip


def test_who_sends_is_who_is_heard() -> None:
    federation, graph = Federation(links_used=0.5), build("mesh", [f"node-{rank}" for rank in range(12)])
    for r in range(1, 5):
        sent = {(a, b) for a in graph.members for b in tells(TRACKING, federation, graph, a, r)}
        heard = {(a, b) for b in graph.members for a in hears(TRACKING, federation, graph, b, r)}
        assert sent == heard and 0 < len(sent) < 12 * 11
    assert hears(TRACKING, Federation(links_used=1), graph, "node-10", 1) == [
        *(f"node-{rank}" for rank in range(10)), "node-11",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"merge_precision": "int8"}, "--merge-precision int8: the method pame says itself what its merges send"),
        ({"merge_top_k": 0.1}, "--merge-top-k 0.1: the method pame says itself what its merges send; accepted is 0"),
        ({"merge_over": "ring"}, "--merge-over ring: the method pame says itself what its merges send"),
        (
            {"robust_merge": "clip", "method": "spod-gt"},
            "--robust-merge clip: the method spod-gt must keep the sum of all trackers, and a bound would lose a part",
        ),
        (
            {"robust_merge": "median", "method": "dfml"},
            "--robust-merge median: the method dfml trains or chooses among whole models, and takes no mean that",
        ),
        (
            {"robust_merge": "clip", "method": "fedspd"},
            "--robust-merge clip: the method fedspd trains or chooses among whole models",
        ),
        (
            {"join": "node-2@3", "method": "spod-gt"},
            "--join and --leave: the method spod-gt must keep the sum of all trackers; accepted with it are members",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_topology(Federation.parse({"method": "pame", **options}))
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["steps_taken", "links_used", "coordinates_sent"])
@pytest.mark.parametrize("value", [0, 1.5, -1])
def test_a_share_is_above_0_and_at_most_1(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=r"--\S+ \S+: accepted is a number above 0, at most 1"):
        Federation.parse({name: value})


def test_a_row_of_ones_own_is_known_by_what_it_exchanges() -> None:
    """Two daemons whose rows differ in a function of the exchange must not agree; repr would name an address."""
    one = Method("mine", exchange=METHODS["pame"].exchange)
    assert one.agreed_value() == Method("mine", exchange=METHODS["pame"].exchange).agreed_value()
    assert one.agreed_value() != Method("mine", exchange=METHODS["dspodfl"].exchange).agreed_value()
