"""Merges that travel in a code of the method's row: simulated is real, to the bit and the byte, on both engines."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import run_as_simulated, small

from p2p_tally.errors import ConfigError, ParameterError
from p2p_tally.learning.exchanges.changes import Changes, change, changes
from p2p_tally.learning.exchanges.clusters import CLUSTERED
from p2p_tally.learning.exchanges.code import Code
from p2p_tally.learning.exchanges.dspodfl import SPORADIC
from p2p_tally.learning.exchanges.exchange import Exchange
from p2p_tally.learning.exchanges.low_rank import LOW_RANK
from p2p_tally.learning.methods import METHODS, Method
from p2p_tally.node.merges.coded_by_method import result_of, whole
from p2p_tally.runner.experiments.experiment import ByteFacts, Cell
from p2p_tally.runner.experiments.payload import cell_bytes
from p2p_tally.runner.simulation.simulate import simulate
from p2p_tally.runner.stacked.by_method import mixed_by_method
from p2p_tally.topologies import build

LAYOUT = ((64, 64), (64,), (10, 64), (10,))
FACTS = ByteFacts(classes=10, parameters=4810, layout=LAYOUT)


def row(code: Code) -> Method:
    exchange = Exchange(SPORADIC.links, SPORADIC.weights, code=code)
    return replace(METHODS["dspodfl"], name="mine", exchange=exchange)


CLUSTERED_ROW = row(CLUSTERED)
CHANGES = Exchange(SPORADIC.links, SPORADIC.weights, gives=change, code=LOW_RANK, returns_kept=True)
LOW_RANK_ROW = replace(METHODS["dspodfl"], name="mine", exchange=CHANGES, merge_step=changes, common_start=True)
# Of 4 clusters: 16 bytes of centroids, and two bits a value, for each tensor; ten values are shorter as they are.
CLUSTERED_BYTES = (16 + 1024) + (16 + 16) + (16 + 160) + 16 + 3
# Of rank 2: 64 + 64 and 10 + 64 values for each; vectors as they are.
LOW_RANK_BYTES = 4 * (2 * 128 + 64 + 2 * 74 + 10)


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({"method": CLUSTERED_ROW, "clusters": 4, "topology": "mesh", "links_used": 1.0}, CLUSTERED_BYTES),
        ({"method": LOW_RANK_ROW, "factor_rank": 2, "topology": "ring", "robust_merge": "clip"}, LOW_RANK_BYTES),
    ],
    ids=["clustered", "low-rank"],
)
async def test_daemons_have_the_bits_and_bytes_of_the_simulation(
    options: dict[str, Any], length: int, tmp_path: Path
) -> None:
    federation = small(nodes=4, merge_every=2, eval_every=8, **options)
    await run_as_simulated(federation, tmp_path)
    counted = cell_bytes(Cell("a", federation, FACTS, "star")).sent_bytes
    stacked = simulate(federation, engine="stacked")
    assert counted == pytest.approx(stacked.lines[-1].payload_bytes)
    assert counted * 4 % length == 0 and counted > 0


def merged(code: Code, rows: list[list[float]], layout: tuple[tuple[int, ...], ...], **options: Any) -> np.ndarray:
    names = [f"node-{rank}" for rank in range(len(rows))]
    settings = small(robust_merge="off", links_used=1.0, **options)
    exchange = Exchange(SPORADIC.links, SPORADIC.weights, code=code)
    found = mixed_by_method(torch.tensor(rows), exchange, settings, build("mesh", names), 1, layout=layout)
    assert found is not None
    result: np.ndarray = found.numpy()
    return result


def test_what_coding_took_stays_with_its_sender() -> None:
    """Two peers, a tensor of 16 values, two clusters. The first has fourteen 0, a 1 and a 9: it sends fifteen times
    1/15 and the 9. The second has all 4, which travel as they are. Their means are 2 + 1/30 and 6.5; to these the first
    adds what clustering took: -1/15 where it has 0, and 14/15 where it has 1."""
    first = [0.0] * 14 + [1.0, 9.0]
    found = merged(CLUSTERED, [first, [4.0] * 16], ((16,),), clusters=2)
    half = 2 + 1 / 30
    assert found[0] == pytest.approx([half - 1 / 15] * 14 + [half + 14 / 15, 6.5])
    assert found[1] == pytest.approx([half] * 15 + [6.5])
    assert found.mean(0) == pytest.approx((np.array(first) + 4.0) / 2)  # the mean over both is kept


def test_what_low_rank_leaves_out_stays_with_its_sender() -> None:
    """diag(10, 0, 2) at rank 1: the 10 travels, the 2 stays. The other has zeros. Both then have 5, and the first its
    own 2."""
    found = merged(LOW_RANK, [np.diag([10.0, 0.0, 2.0]).ravel().tolist(), [0.0] * 9], ((3, 3),), factor_rank=1)
    assert found[0] == pytest.approx(np.diag([5.0, 0.0, 2.0]).ravel(), abs=1e-3)
    assert found[1] == pytest.approx(np.diag([5.0, 0.0, 0.0]).ravel(), abs=1e-3)


def test_what_is_left_out_of_a_change_is_part_of_the_next() -> None:
    """At rank 1, from zeros: the first moves by diag(10, 0, 2), the second stays. The 10 travels, so both bases are at
    5, and the first has its 2 besides. None moves further: the first change is then the 2, which travels."""
    peers, graph = [Changes(torch.zeros(9)) for _ in range(2)], build("mesh", ["a", "b"])
    settings = small(robust_merge="off", links_used=1.0, factor_rank=1)
    models = [torch.diag(torch.tensor([10.0, 0.0, 2.0])).ravel(), torch.zeros(9)]
    expected = [((5.0, 0.0, 2.0), (5.0, 0.0, 0.0)), ((5.0, 0.0, 1.0), (5.0, 0.0, 1.0))]
    for after in expected:
        given = torch.stack([peer.since(model) for peer, model in zip(peers, models, strict=True)])
        found = mixed_by_method(given, CHANGES, settings, graph, 1, layout=((3, 3),))
        assert found is not None
        models = [peer.step(both) for peer, both in zip(peers, found, strict=True)]
        for model, diagonal in zip(models, after, strict=True):
            torch.testing.assert_close(model.view(3, 3), torch.diag(torch.tensor(diagonal)), atol=1e-3, rtol=0)


def test_a_peer_whose_parameters_are_not_finite_ends_the_merge() -> None:
    rows = torch.tensor([[float("nan")] * 4, [0.0] * 4])
    exchange = Exchange(SPORADIC.links, SPORADIC.weights, code=CLUSTERED)
    assert mixed_by_method(rows, exchange, small(), build("mesh", ["a", "b"]), 1, layout=((4,),)) is None


def test_a_neighbour_pulls_no_further_than_the_nearer_half() -> None:
    """Own 0, and 2 and 600: the far one counts as 2. With thirds as weights the result is 4/3."""
    settings, graph = small(links_used=1.0), build("mesh", ["a", "b", "c"])
    exchange = Exchange(SPORADIC.links, SPORADIC.weights, code=CLUSTERED)
    own, others = np.zeros(1, np.float32), {"b": np.full(1, 2, np.float32), "c": np.full(1, 600, np.float32)}
    assert result_of(exchange, settings, graph, "a", 1, own, own, others, True) == pytest.approx(4 / 3)  # type: ignore[arg-type]


def test_a_part_of_another_length_is_refused() -> None:
    assert whole(b"abc", 3) == b"abc"
    with pytest.raises(ParameterError, match="2 bytes instead of 3 of a coded vector"):
        whole(b"ab", 3)


def test_the_formula_needs_the_shapes_of_the_tensors() -> None:
    federation = small(method=CLUSTERED_ROW)
    with pytest.raises(ConfigError, match="sends coded tensors; facts must say their shapes: layout"):
        cell_bytes(Cell("a", federation, ByteFacts(classes=10, parameters=4810), "star"))
