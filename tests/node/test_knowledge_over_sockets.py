"""Methods that exchange knowledge: simulated is real, and what they send is what the formula says, to the byte."""

from pathlib import Path

import pytest
from conftest import run_as_simulated, small

from p2p_tally.runner.experiments.experiment import ByteFacts, Cell
from p2p_tally.runner.experiments.payload import cell_bytes

PARAMETERS = 64 * 64 + 64 + 64 * 10 + 10  # of the perceptron for digits


@pytest.mark.parametrize(
    ("options", "ballot"),
    [
        ({"method": "cronus", "nodes": 5, "topology": "mesh"}, 4 * 16 * 10),
        ({"method": "cronus", "topology": "ring"}, 4 * 16 * 10),
        ({"method": "fd", "nodes": 5, "topology": "mesh", "probe_labels": "hidden"}, 4 * 10 * (1 + 10)),
        ({"method": "fd", "topology": "ring", "model": "mlp:8,mlp:16x2"}, 4 * 10 * (1 + 10)),
        ({"method": "fedproto", "nodes": 5, "topology": "mesh"}, 4 * 10 * (1 + 64)),
        ({"method": "fedproto", "topology": "ring", "model": "mlp:64,mlp:64x2"}, 4 * 10 * (1 + 64)),
    ],
    ids=str,
)
async def test_the_bits_and_the_bytes(options: dict[str, object], ballot: int, tmp_path: Path) -> None:
    federation = small(merge_every=0, eval_every=8, **options)
    daemons = await run_as_simulated(federation, tmp_path)
    sent = sum(daemon.node.ledger.total_sent().payload for daemon in daemons) / len(daemons)
    neighbours = federation.nodes - 1 if federation.topology == "mesh" else 2
    assert sent == 6 * neighbours * ballot  # of eight rounds two are the warm-up
    cell = Cell("one", federation, ByteFacts(classes=10, parameters=PARAMETERS, features=64), "mesh")
    assert cell_bytes(cell).sent_bytes == sent


@pytest.mark.parametrize(
    "options", [{"nodes": 5, "topology": "mesh"}, {"topology": "ring", "model": "mlp:8,mlp:16"}], ids=str
)
async def test_anchors_travel_once(options: dict[str, object], tmp_path: Path) -> None:
    """Of six ballots the first has 16 examples of 64 values and a label, the others a name and 16 rows of 10."""
    federation = small(method="desa", merge_every=0, eval_every=8, **options)
    daemons = await run_as_simulated(federation, tmp_path)
    sent = sum(daemon.node.ledger.total_sent().payload for daemon in daemons) / len(daemons)
    neighbours = federation.nodes - 1 if federation.topology == "mesh" else 2
    assert sent == neighbours * (4 * 16 * 65 + 5 * 4 * (1 + 160))
    cell = Cell("one", federation, ByteFacts(classes=10, parameters=PARAMETERS, features=64), "mesh")
    assert cell_bytes(cell).sent_bytes == sent
    assert cell_bytes(cell).payload_bytes == (federation.nodes - 1) * (4 * 16 * 65 + 5 * 4 * (1 + 160))
