"""Facts of topologies worked by hand, and pictures."""

import math
import subprocess
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import p2p_tally
from p2p_tally.topologies import Hops, TopologyError, build
from p2p_tally.topologies.facts import Facts, describe, mean_reach, plot
from p2p_tally.topologies.mixing import metropolis_hastings


def names(count: int) -> list[str]:
    return [f"node-{rank}" for rank in range(count)]


# --- facts -------------------------------------------------------------------------------------------------


def test_facts_of_a_mesh() -> None:
    assert describe(build("mesh", names(8))) == Facts(
        name="mesh",
        nodes=8,
        edges=28,
        degree=(7, 7),
        diameter=1,
        spectral_gap=1.0,
        rounds_to_tenfold=1,
        complete=True,
        varies=False,
        period=1,
    )


def test_facts_of_a_ring() -> None:
    facts = describe(build("ring", names(8)))
    assert (facts.nodes, facts.edges, facts.degree, facts.diameter) == (8, 8, (2, 2), 4)
    assert facts.spectral_gap == pytest.approx(2 / 3 * (1 - math.cos(math.pi / 4)))
    assert facts.rounds_to_tenfold == 11  # 0.805 ^ 10 is 0.114, ^ 11 is 0.092


def test_facts_of_a_star() -> None:
    facts = describe(build("star", names(8)))
    assert (facts.edges, facts.degree, facts.diameter) == (7, (1, 7), 2)
    assert facts.spectral_gap == pytest.approx(1 / 8)
    assert not facts.complete


def test_facts_of_a_single_member() -> None:
    facts = describe(build("gossip", ["only"]))
    assert (facts.edges, facts.degree, facts.diameter, facts.rounds_to_tenfold) == (0, (0, 0), 0, 0)


def test_facts_of_one_peer_exponential() -> None:
    facts = describe(build("one-peer-exponential", names(16)))
    assert (facts.edges, facts.degree, facts.diameter) == (8, (1, 1), 4)
    assert (facts.spectral_gap, facts.rounds_to_tenfold, facts.period) == (1.0, 4, 4)
    assert facts.varies
    assert not facts.complete


def test_facts_of_matchings() -> None:
    facts = describe(build("matchings", names(8), seed=1))
    assert (facts.edges, facts.degree, facts.period) == (4, (1, 1), None)
    assert facts.spectral_gap == pytest.approx(1 - math.sqrt(3 / 7))
    assert facts.rounds_to_tenfold == 6
    assert facts.diameter >= 3  # news at most doubles its hearers in a round


def test_redrawing_mixes_faster_than_holding() -> None:
    held, redrawn = build("gossip", names(64)), build("gossip-k:1", names(64))
    assert describe(redrawn).spectral_gap > describe(held).spectral_gap
    assert describe(redrawn).edges == describe(held).edges


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["ring", "line", "star", "barbell", "gossip", "small-world", "erdos-renyi"]),
    st.integers(min_value=2, max_value=30),
    st.integers(min_value=0, max_value=99),
)
def test_diameter_is_that_of_networkx(name: str, count: int, seed: int) -> None:
    topology = build(name, names(count), seed=seed)
    assert describe(topology).diameter == nx.diameter(topology.graph())


def test_facts_of_a_thousand_and_more() -> None:
    facts = describe(build("gossip", names(1500)))
    assert (facts.edges, facts.degree) == (1500 * 11 // 2, (11, 11))
    assert 0.3 < facts.spectral_gap < 0.5
    assert describe(build("mesh", names(600))).spectral_gap == 1.0


def test_disagreement_is_a_tenth_when_said() -> None:
    topology = build("torus", names(36))
    weights = metropolis_hastings(topology.graph()).toarray() - 1 / 36
    rounds = describe(topology).rounds_to_tenfold

    assert np.linalg.norm(np.linalg.matrix_power(weights, rounds), 2) <= 0.1
    assert np.linalg.norm(np.linalg.matrix_power(weights, rounds - 1), 2) > 0.1


# --- who hears a vote --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count", "hops", "expected"),
    [
        ("mesh", 8, 1, 7),
        ("mesh", 8, 3, 7),
        ("mesh", 1, "all", 0),
        ("ring", 8, 2, 4),
        ("ring", 8, "all", 7),
        ("star", 8, 1, 14 / 8),
        ("matchings", 9, 1, 8 / 9),
    ],
)
def test_how_many_hear_a_vote(name: str, count: int, hops: Hops, expected: float) -> None:
    assert mean_reach(build(name, names(count)), hops) == pytest.approx(expected)


# --- pictures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count", "file", "magic"),
    [
        ("gossip", 8, "g.svg", b"<?xml"),
        ("gossip", 256, "g.png", b"\x89PNG"),
        ("star", 8, "g.PNG", b"\x89PNG"),
        ("matchings", 9, "g.svg", b"<?xml"),
        ("one-peer-exponential", 8, "g.pdf", b"%PDF"),
        ("mesh", 1, "g.svg", b"<?xml"),
    ],
)
def test_pictures(tmp_path: Path, name: str, count: int, file: str, magic: bytes) -> None:
    plot(build(name, names(count)), tmp_path / file)
    assert (tmp_path / file).read_bytes().startswith(magic)


def test_no_picture(tmp_path: Path) -> None:
    ring = build("ring", names(4))
    with pytest.raises(TopologyError, match=r"'g\.gif'.*\.svg, \.png, \.pdf"):
        plot(ring, "g.gif")
    with pytest.raises(TopologyError, match="cannot be written: No such file"):
        plot(ring, tmp_path / "nowhere" / "g.svg")


def test_matplotlib_is_loaded_for_pictures_only_and_pyplot_never(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom p2p_tally import topologies\nfrom p2p_tally.topologies import facts\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"facts.plot(topologies.build('ring', ['a', 'b', 'c']), {str(tmp_path / 'g.svg')!r})\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    root = str(Path(p2p_tally.__path__[0]).parent)
    subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": root}, check=True)
