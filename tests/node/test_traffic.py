"""The one model of bytes against what real nodes book: every method, graph and option that changes a byte, by stage."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from p2p_tally import Arrays, Source
from p2p_tally.config import Federation
from p2p_tally.ids import NodeName, ranked_names
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.methods import METHODS
from p2p_tally.learning.setup import features_of, make_learner, prepare
from p2p_tally.node.formats import ballot_format
from p2p_tally.node.links.outbox import framed_bytes
from p2p_tally.node.links.transport import dials
from p2p_tally.node.traffic import Traffic, payload, totals
from p2p_tally.protocol import frames, segments
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.ledger import Count
from p2p_tally.protocol.messages import Ready, Relayed, Stage, Vote
from p2p_tally.runner.simulation.simulate import simulate
from p2p_tally.topologies import build

ByStage = dict[str, dict[str, float]]

GRAPHS: tuple[dict[str, Any], ...] = (
    {"topology": "mesh"},
    {"topology": "ring"},
    {"topology": "star"},
    {"topology": "gossip", "degree": 4},
    {"topology": "gossip-k:2"},
    {"topology": "one-peer-exponential", "nodes": 8},
    {"topology": "matchings"},  # of 7 peers one has none
)


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several runs a segment, of a model that is quick to train."""
    monkeypatch.setattr(segments, "RUN", 200)


def federation_of(options: dict[str, Any]) -> Federation:
    defaults = {"nodes": 7, "rounds": 5, "warmup": 1, "merge_every": 2, "local_steps": 1, "batch": 4, "eval_every": 1}
    if options.get("method") == "local":
        defaults["merge_every"] = 0
    return Federation.parse({**defaults, **options})


def booked(federation: Federation) -> list[ByStage]:
    """What real nodes sent in each round, a peer's mean."""
    return [line.sent for line in simulate(federation, engine="exact").lines]


def planned(federation: Federation) -> Iterator[ByStage]:
    """The same by the schedule alone."""
    task = prepare(federation)
    ballots = ballot_format(task.federation, task.probes.votes_per_round, task.classes, features_of(task))
    parameters = make_learner(task, NodeName("node-0"), 0, "cpu").parameters
    traffic = Traffic(task.federation, make_topology(task.federation), ballots, len(parameters), parameters.layout)
    for r, said, merge in traffic.planned():
        counts = totals(traffic.round(r, said, merge))
        assert payload(traffic.round(r, said, merge)) == sum(count.payload for count in counts.values())
        yield {
            stage.name.lower(): {"payload": count.payload / traffic.nodes, "framed": count.framed / traffic.nodes}
            for stage, count in counts.items()
        }


CHANGING = ("gossip-k:2", "one-peer-exponential", "matchings")
# DeSA sends its examples once, to neighbours that stay.
EVERY = [
    (method, graph)
    for method, graph in product(METHODS, GRAPHS)
    if method != "desa" or graph["topology"] not in CHANGING
]


@pytest.mark.parametrize(("method", "graph"), EVERY, ids=str)
def test_every_method_on_every_graph(method: str, graph: dict[str, Any]) -> None:
    federation = federation_of({"method": method, **graph})
    assert list(planned(federation)) == booked(federation)


@pytest.mark.parametrize(
    "options",
    [
        {"nodes": 1},
        {"nodes": 2},
        {"nodes": 3},
        {"nodes": 1, "method": "fedmd", "merge_precision": "int8"},
        {"nodes": 2, "topology": "ring", "method": "fedmd"},
        {"nodes": 3, "topology": "line", "method": "rcfd"},
        {"nodes": 12},  # a mask of two bytes
        {"join": "node-2@3,node-6@4", "leave": "node-0@4"},
        {"nodes": 14, "leave": "churn:0.1", "method": "diloco", "merge_precision": "int8"},
        {"join": "node-2@3,node-6@4", "leave": "node-0@4", "topology": "ring", "hops": 2, "method": "fedprox"},
        {"join": "node-2@3", "leave": "node-0@4", "topology": "ring", "merge_over": "ring"},
        {"join": "node-2@3", "topology": "matchings", "method": "feddf"},
        {"join": "node-2@3", "method": "fedavg", "rounds": 150, "warmup": 140, "leave": "node-0@149"},
        {"ballot": "packed"},
        {"method": "rcfd", "top_k": 1},
        {"method": "rcfd", "top_k": 3, "soft_precision": "int8"},
        {"method": "fedmd", "soft_precision": "float16"},
        {"method": "feddf", "soft_precision": "int8", "topology": "ring"},
        {"kl_decay": 3},
        {"alpha": 1.0},
        {"probes_per_round": 130},  # a ballot whose frame has a longer header
        {"topology": "ring", "hops": 2},
        {"topology": "ring", "hops": "all", "method": "fedmd", "soft_precision": "int8"},
        {"topology": "line", "hops": 4},
        {"topology": "star", "hops": 2, "method": "rcfd"},
        {"topology": "gossip-k:2", "hops": 2, "nodes": 9},
        {"topology": "one-peer-exponential", "hops": 3, "nodes": 4},
        {"topology": "mesh", "hops": 3},
        {"topology": "satellites:2x1500x3", "nodes": 12, "hops": 2, "method": "feddf"},
        {"merge_precision": "bfloat16"},
        {"merge_precision": "int8"},
        {"merge_precision": "int8", "topology": "ring"},
        {"merge_precision": "int8", "nodes": 2, "method": "fedavg"},
        {"merge_top_k": 0.1},
        {"merge_top_k": 0.1, "merge_precision": "int8", "method": "diloco"},
        {"merge_top_k": 0.1, "merge_precision": "bfloat16", "method": "fedprox"},
        {"method": "pame", "coordinates_sent": 0.01, "links_used": 1},
        {"method": "dspodfl", "links_used": 0.1, "join": "node-2@3", "leave": "node-0@4"},
        {"merge_over": "ring", "topology": "ring"},
        {"merge_over": "ring", "topology": "torus", "nodes": 6, "method": "diloco"},
        {"merge_over": "ring", "topology": "ring", "hops": 2},
        {"merge_over": "ring", "nodes": 1},
        {"merge_over": "ring", "nodes": 2},
        {"merge_over": "ring", "nodes": 3, "method": "fedavg"},
        {"model": "mlp:8,mlp:16", "merge_every": 0},
    ],
    ids=str,
)
def test_every_option_that_changes_bytes(options: dict[str, Any]) -> None:
    federation = federation_of(options)
    assert list(planned(federation)) == booked(federation)


@pytest.mark.parametrize(
    ("options", "stages"),
    [
        ({"ballot": "coded"}, {"vote"}),
        ({"ballot": "coded", "topology": "ring", "hops": 2}, {"vote"}),
        ({"warmup": "auto"}, {"ready", "vote"}),
        ({"warmup": "auto", "nodes": 1}, set()),
        ({"warmup": "auto", "topology": "line", "method": "fedmd"}, {"ready", "vote", "vector"}),
        ({"warmup": "auto", "topology": "line", "hops": 2}, {"ready", "vote", "vector"}),
        ({"warmup": "auto", "topology": "ring", "method": "no-consensus", "merge_every": 4}, {"vector"}),
        ({"warmup": "auto", "topology": "one-peer-exponential", "nodes": 8}, {"ready", "vote", "vector"}),
        ({"merge_when": "drift", "merge_threshold": 0.97, "merge_every": 2}, {"vote", "scatter", "gather"}),
    ],
    ids=lambda value: value if isinstance(value, str) else str(sorted(value) if isinstance(value, set) else value),
)
def test_what_only_a_run_can_tell(options: dict[str, Any], stages: set[str]) -> None:
    """How long a ballot is, who is ready with which count, when votes have drifted: the stacked engine tells it to the
    model of bytes, round by round."""
    federation = federation_of({"rounds": 24, "local_steps": 2, "batch": 32, "lr": 0.003, **options})
    expected = booked(federation)
    assert [line.sent for line in simulate(federation, engine="stacked").lines] == expected
    assert stages <= {stage for sent in expected for stage in sent}


def many_classes() -> Source:
    """Classes past the last one that two bytes name: the labels are the last 100 of 70,000."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(69_900, 70_000, (120,), generator=generator)
    x = torch.randn(120, 4, generator=generator)
    return Source(Arrays(x[:100], y[:100]), Arrays(x[100:], y[100:]), classes=70_000, input_shape=(4,), holdout=32)


@pytest.mark.parametrize(
    ("options", "vote"),
    [
        ({}, 2 * 3 * 8),
        ({"ballot": "packed"}, 2 * 8 * 17 // 8),
        ({"ballot": "coded"}, None),
        ({"method": "rcfd", "top_k": 3, "soft_precision": "int8"}, 2 * 8 * 3 * (3 + 1)),
    ],
    ids=str,
)
def test_votes_of_three_bytes(options: dict[str, Any], vote: int | None) -> None:
    shared = {"nodes": 3, "merge_every": 0, "probes_per_round": 8, "partition": "iid", "model": "mlp:2"}
    federation = federation_of({"data": many_classes(), **shared, **options})
    expected = booked(federation)
    assert [line.sent for line in simulate(federation, engine="stacked").lines] == expected
    if vote is not None:
        assert {sent["vote"]["payload"] for sent in expected[1:]} == {vote}
        assert list(planned(federation)) == expected
    else:
        assert all(sent["vote"]["payload"] <= 2 * (1 + 17) for sent in expected[1:])


def test_runs_past_number_127_of_a_ring_take_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "RUN", 10)
    options = {"nodes": 20, "topology": "torus", "partition": "resample:8", "method": "fedavg", "merge_over": "ring"}
    federation = federation_of({**options, "rounds": 2})
    assert list(planned(federation)) == booked(federation)


@pytest.mark.parametrize("message", [Vote(3, bytes(16)), Ready(3, 2, 16)])
def test_relays_are_counted_to_the_byte_where_numbers_grow_wider(message: Vote | Ready) -> None:
    """Origins past 127 and 255, and ways of more than 127 links, take more room in a frame."""
    topology, speaking = build("ring", ranked_names(300)), np.arange(300) % 3 > 0
    expected = Count()
    for member in np.flatnonzero(speaking).tolist():
        for peer in topology.neighbours(topology.members[member]):
            ends = NodeName(topology.members[member]), NodeName(peer)
            expected.add(message.payload, framed_bytes(len(frames.encode(message)), masked=dials(*ends)))
    reach = topology.reach(1, 140)
    for origin, distance, child, parent in zip(reach.origin, reach.distance, reach.member, reach.parent, strict=True):
        if distance > 1 and speaking[origin]:
            relayed = Relayed(int(origin), int(distance), message)
            ends = NodeName(topology.members[parent]), NodeName(topology.members[child])
            expected.add(message.payload, framed_bytes(len(frames.encode(relayed)), masked=dials(*ends)))
    traffic = Traffic(Federation(hops=140), topology, BallotFormat("byte", 16, 10), 0)
    assert totals(traffic.round(3, [(message, speaking)])) == {message.stage: expected}


def test_a_peer_that_sends_nothing_costs_nothing() -> None:
    traffic = Traffic(Federation(), build("star", ranked_names(5)), BallotFormat("byte", 16, 10), 100)
    hub, leaf = np.arange(5) == 0, np.arange(5) == 4
    assert totals(traffic.round(2)) == {}
    assert totals(traffic.round(2, [(Vote(2, bytes(16)), ~traffic.everyone)])) == {}
    assert totals(traffic.round(2, [(Vote(2, bytes(16)), hub)]))[Stage.VOTE].messages == 4
    assert totals(traffic.round(2, [(Vote(2, bytes(16)), leaf)]))[Stage.VOTE].messages == 1
    assert totals(traffic.round(2, merge=ChangeFormat()))[Stage.VECTOR].payload == 8 * 400
