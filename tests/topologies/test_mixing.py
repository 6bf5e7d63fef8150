"""Mixing weights: doubly stochastic on any graph; gaps against closed forms and against the dense product."""

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse import linalg

from p2p_tally.topologies import TopologyError, build, mixing
from p2p_tally.topologies.mixing import (
    check_mixing,
    expected_gap,
    metropolis_hastings,
    rounds_to_contract,
    spectral_gap,
)

quick = settings(max_examples=50, deadline=None)


def names(count: int) -> list[str]:
    return [f"node-{rank}" for rank in range(count)]


@st.composite
def graphs(draw: st.DrawFn) -> nx.Graph:
    """Any simple graph, connected or not."""
    count = draw(st.integers(min_value=1, max_value=12))
    pairs = [(one, other) for one in range(count) for other in range(one)]
    graph = nx.empty_graph(count)
    graph.add_edges_from(draw(st.lists(st.sampled_from(pairs)) if pairs else st.just([])))
    return graph


def disagreement(*rounds: sparse.csr_array) -> float:
    """The norm of the product on disagreement, the plain way."""
    nodes = rounds[0].shape[0]
    product = np.eye(nodes) - 1 / nodes
    for weights in rounds:
        product = weights.toarray() @ product
    return float(np.linalg.norm(product - product.mean(axis=0), 2))


# --- weights -----------------------------------------------------------------------------------------------


def test_weights_of_a_path_by_hand() -> None:
    third = 1 / 3
    expected = [[2 / 3, third, 0], [third, third, third], [0, third, 2 / 3]]
    assert metropolis_hastings(nx.path_graph(3)).toarray() == pytest.approx(np.array(expected))


def test_weights_of_a_star_by_hand() -> None:
    weights = metropolis_hastings(nx.star_graph(4)).toarray()
    assert weights[0] == pytest.approx(np.full(5, 1 / 5))
    assert weights[3] == pytest.approx(np.array([1 / 5, 0, 0, 4 / 5, 0]))


@quick
@given(graphs())
def test_weights_are_doubly_stochastic_and_symmetric(graph: nx.Graph) -> None:
    weights = metropolis_hastings(graph)
    check_mixing(weights)
    dense = weights.toarray()
    assert (dense >= 0).all()
    assert (np.diag(dense) > 0).all()
    assert (dense == dense.T).all()
    assert dense.sum(axis=0) == pytest.approx(np.ones(len(graph)), abs=1e-12)
    assert dense.sum(axis=1) == pytest.approx(np.ones(len(graph)), abs=1e-12)
    off = dense - np.diag(np.diag(dense))
    assert {frozenset(pair) for pair in zip(*np.nonzero(off), strict=True)} == set(map(frozenset, graph.edges()))


@quick
@given(st.integers(min_value=1, max_value=60))
def test_complete_graph_is_exactly_one_nth(count: int) -> None:
    assert (metropolis_hastings(nx.complete_graph(count)).toarray() == 1 / count).all()


@quick
@given(graphs(), st.integers(min_value=0, max_value=2**32 - 1))
def test_mixing_keeps_the_mean_and_never_adds_disagreement(graph: nx.Graph, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=len(graph))
    mixed = metropolis_hastings(graph) @ values
    assert mixed.mean() == pytest.approx(values.mean(), abs=1e-12)
    assert mixed.std() <= values.std() + 1e-12


def test_topology_and_matrix_agree() -> None:
    topology = build("erdos-renyi", names(30), seed=4)
    matrix = metropolis_hastings(topology.graph()).toarray()
    for rank, member in enumerate(topology.members):
        row = topology.weights(member)
        assert [row.get(other, 0.0) for other in topology.members] == list(matrix[rank])


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        ([[1.0, 0.0]], "square"),
        ([[1.5, -0.5], [-0.5, 1.5]], "not negative"),
        ([[math.nan, 0.0], [0.0, 1.0]], "finite"),
        ([[0.5, 0.5], [0.4, 0.6]], "symmetric"),
        ([[0.5, 0.4], [0.4, 0.5]], "sum to 1"),
    ],
)
def test_check_refuses(matrix: list[list[float]], says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        check_mixing(sparse.csr_array(np.array(matrix)))


# --- gaps --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "gap"),
    [
        (nx.empty_graph(1), 1.0),
        (nx.complete_graph(7), 1.0),
        (nx.empty_graph(4), 0.0),
        (nx.cycle_graph(8), 2 / 3 * (1 - math.cos(2 * math.pi / 8))),
        (nx.path_graph(8), 2 / 3 * (1 - math.cos(math.pi / 8))),
        (nx.star_graph(7), 1 / 8),
        (nx.hypercube_graph(4), 2 / 5),
        (nx.complete_bipartite_graph(3, 3), 1 / 2),  # eigenvalues 1/4 and -1/2: the negative one decides
    ],
)
def test_gap_in_closed_form(graph: nx.Graph, gap: float) -> None:
    assert spectral_gap(metropolis_hastings(graph)) == pytest.approx(gap, abs=1e-12)


@pytest.mark.parametrize("name", ["gossip", "torus", "star", "ring", "line", "barbell"])
def test_sparse_solver_agrees_with_the_dense_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = metropolis_hastings(build(name, names(200)).graph())
    dense = spectral_gap(weights)
    monkeypatch.setattr(mixing, "DENSE_NODES", 10)
    assert spectral_gap(weights) == pytest.approx(dense, rel=1e-6)
    assert spectral_gap(weights) == spectral_gap(weights)


def test_a_long_ring_has_a_gap_too() -> None:
    weights = metropolis_hastings(nx.cycle_graph(3000))
    assert spectral_gap(weights) == pytest.approx(2 / 3 * (1 - math.cos(2 * math.pi / 3000)), rel=1e-4)


def test_where_the_solver_gives_up_the_other_one_minds_the_negative_end(monkeypatch: pytest.MonkeyPatch) -> None:
    eigsh = linalg.eigsh

    def give_up(*matrix: Any, which: str = "LM", sigma: float | None = None, **options: Any) -> Any:
        if which == "LM" and sigma is None:
            raise linalg.ArpackNoConvergence("too many iterations", np.empty(0), np.empty(0))
        return eigsh(*matrix, which=which, sigma=sigma, **options)

    monkeypatch.setattr(linalg, "eigsh", give_up)
    monkeypatch.setattr(mixing, "DENSE_NODES", 10)
    weights = metropolis_hastings(nx.complete_bipartite_graph(20, 20))  # |lambda_2| is at -19/21
    assert spectral_gap(weights) == pytest.approx(1 - 19 / 21)


@quick
@given(st.lists(graphs(), min_size=2, max_size=5), st.integers(min_value=2, max_value=9))
def test_gap_of_several_rounds_is_that_of_their_product(drawn: list[nx.Graph], count: int) -> None:
    rounds = []
    for graph in drawn:
        fitted = nx.empty_graph(count)
        fitted.add_edges_from((one, other) for one, other in graph.edges() if max(one, other) < count)
        rounds.append(metropolis_hastings(fitted))
    expected = disagreement(*rounds) ** (1 / len(rounds))
    if expected < 1e-3:  # exact averaging: the root of a rounding error says nothing
        expected = 0.0
    assert spectral_gap(*rounds) == pytest.approx(1 - expected, abs=1e-3)


def test_gap_of_one_peer_exponential_is_one_over_its_period() -> None:
    topology = build("one-peer-exponential", names(16))
    rounds = [metropolis_hastings(topology.graph(round)) for round in range(1, 5)]
    assert spectral_gap(*rounds) == 1.0
    assert spectral_gap(*rounds[:3]) == pytest.approx(0.0)  # one bit never mixed


def test_gap_does_not_sink_into_rounding_over_many_rounds() -> None:
    weights = metropolis_hastings(nx.cycle_graph(5))
    other = metropolis_hastings(nx.cycle_graph(5))
    assert spectral_gap(*[weights, other] * 100) == pytest.approx(spectral_gap(weights), abs=1e-6)


@pytest.mark.parametrize("count", [4, 8, 50, 51])
def test_expected_gap_of_matchings(count: int) -> None:
    # In the mean square: (trace of W - 1) / (N - 1), for a matching is a projection.
    topology = build("matchings", names(count))
    drawn = [metropolis_hastings(topology.graph(round)) for round in (1, 2, 3)]
    trace = count - count // 2
    assert expected_gap(drawn) == pytest.approx(1 - math.sqrt((trace - 1) / (count - 1)))


def test_expected_gap_agrees_with_what_vectors_do() -> None:
    topology = build("gossip-k:3", names(20), seed=1)
    drawn = [metropolis_hastings(topology.graph(round)) for round in range(1, 300, 3)]
    vector = np.zeros(20)
    vector[0] = 1.0
    vector -= vector.mean()
    shrunk = [np.linalg.norm(w @ (w @ (w @ vector))) / np.linalg.norm(vector) for w in drawn]
    observed = 1 - np.mean(np.square(shrunk)) ** (1 / 6)
    assert expected_gap(drawn, hold=3) == pytest.approx(observed, rel=0.05)


@pytest.mark.parametrize("hold", [1, 5, 400])
def test_expected_gap_by_a_sample_of_directions(hold: int, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = metropolis_hastings(build("gossip", names(200)).graph())
    dense = expected_gap([weights], hold)
    monkeypatch.setattr(mixing, "DENSE_NODES", 10)
    assert expected_gap([weights], hold) == pytest.approx(dense, rel=0.02)


def test_expected_gap_at_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert expected_gap([metropolis_hastings(nx.complete_graph(5))]) == 1.0
    with monkeypatch.context() as sampled:
        sampled.setattr(mixing, "DENSE_NODES", 4)
        assert expected_gap([metropolis_hastings(nx.complete_graph(5))]) == 1.0
    assert expected_gap([metropolis_hastings(nx.empty_graph(1))]) == 1.0
    # Held for long, it is the gap of the graph itself.
    ring = metropolis_hastings(nx.cycle_graph(8))
    assert expected_gap([ring], hold=10**6) == pytest.approx(spectral_gap(ring), abs=1e-5)


def test_gap_refuses() -> None:
    with pytest.raises(TopologyError, match="at least one"):
        spectral_gap()
    with pytest.raises(TopologyError, match="same nodes"):
        spectral_gap(metropolis_hastings(nx.path_graph(3)), metropolis_hastings(nx.path_graph(4)))
    with pytest.raises(TopologyError, match="symmetric"):
        spectral_gap(sparse.csr_array(np.array([[0.5, 0.5], [0.4, 0.6]])))


# --- rounds to contract ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gap", "factor", "rounds"),
    [(1.0, 10, 1), (0.9, 10, 1), (0.89, 10, 2), (0.5, 2, 1), (0.5, 8, 3), (0.5, 10, 4), (0.1, 10, 22)],
)
def test_rounds_to_contract(gap: float, factor: float, rounds: int) -> None:
    assert rounds_to_contract(gap, factor) == rounds


@quick
@given(st.floats(min_value=1e-6, max_value=0.999), st.floats(min_value=1.01, max_value=1e6))
def test_rounds_to_contract_is_the_first_that_does(gap: float, factor: float) -> None:
    rounds = rounds_to_contract(gap, factor)
    logarithm = math.log1p(-gap)
    assert rounds * logarithm <= -math.log(factor) * (1 - 1e-8)
    assert rounds == 1 or (rounds - 1) * logarithm > -math.log(factor) * (1 + 1e-8)


@pytest.mark.parametrize(("gap", "factor"), [(0.0, 10), (-0.1, 10), (1.1, 10), (math.nan, 10), (0.5, 1.0)])
def test_rounds_to_contract_refuses(gap: float, factor: float) -> None:
    with pytest.raises(TopologyError, match="above"):
        rounds_to_contract(gap, factor)
