"""Property 1: the same federation gives the same bits simulated and over real sockets, for every method and graph."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from conftest import make_daemons, open_listener, run_all, run_as_simulated, small

from p2p_tally.config import DaemonSettings
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.protocol.messages import Stage
from p2p_tally.runner.simulation.simulate import simulate

METHODS = ["tally", "fedmd", "fedavg", "fedprox", "rcfd", "feddf", "diloco"]
GRAPHS = [{"topology": "mesh"}, {"topology": "ring"}, {"topology": "gossip", "degree": 4}]


@pytest.mark.parametrize("merge_every", [0, 4])
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph["topology"])
@pytest.mark.parametrize("method", METHODS)
async def test_same_bits_and_same_bytes(
    method: str, graph: dict[str, object], merge_every: int, tmp_path: Path
) -> None:
    federation = small(nodes=6, method=method, merge_every=merge_every, eval_every=8, **graph)
    await run_as_simulated(federation, tmp_path)


@pytest.mark.parametrize(
    ("method", "graph"),
    [
        ("gflat", {"topology": "mesh"}),
        ("gflat", {"topology": "ring"}),
        ("dspodfl", {"topology": "mesh"}),
        ("dspodfl", {"topology": "gossip-k:2", "degree": 4}),
        ("pame", {"topology": "mesh", "coordinates_sent": 0.3}),
        ("pame", {"topology": "ring", "robust_merge": "clip"}),
        ("dpfl", {"topology": "ring", "partition": "dirichlet:0.1"}),
        ("dfml", {"topology": "ring", "mutual_cycle": 4}),
        ("fedspd", {"topology": "ring", "partition": "dirichlet:0.1"}),
        ("fedkd", {"topology": "mesh", "mentor": "mlp:24"}),
        ("spod-gt", {"topology": "mesh"}),
        ("spod-gt", {"topology": "gossip", "degree": 4}),
    ],
    ids=str,
)
async def test_methods_with_an_exchange_of_their_own(method: str, graph: dict[str, object], tmp_path: Path) -> None:
    await test_same_bits_and_same_bytes(method, graph, 2, tmp_path)


@pytest.mark.parametrize("method", ["tally", "fedmd", "rcfd", "no-consensus"])
async def test_mixed_models_give_the_same_bits_and_bytes(method: str, tmp_path: Path) -> None:
    await test_same_bits_and_same_bytes(method, {"topology": "ring", "model": "mlp:8,mlp:16x2,cnn:4x2"}, 0, tmp_path)


@pytest.mark.parametrize("method", ["tally", "diloco"])
@pytest.mark.parametrize(
    "options",
    [
        {"merge_precision": "bfloat16"},
        {"merge_precision": "int8"},
        {"merge_precision": "int8", "merge_top_k": 0.1},
        {"merge_precision": "float32", "merge_top_k": 0.1},
        {"merge_precision": "bfloat16", "topology": "ring"},
        {"merge_precision": "int8", "topology": "gossip", "degree": 4},
    ],
    ids=str,
)
async def test_coded_merges_give_the_same_bits_and_bytes(
    options: dict[str, object], method: str, tmp_path: Path
) -> None:
    await test_same_bits_and_same_bytes(method, options, 2, tmp_path)


@pytest.mark.parametrize(("method", "precision"), [("fedmd", "int8"), ("rcfd", "float16")])
async def test_rounded_probabilities_give_the_same_bits_and_bytes(method: str, precision: str, tmp_path: Path) -> None:
    await test_same_bits_and_same_bytes(method, {"soft_precision": precision}, 0, tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"balance": 1.0, "calibrate": 0.5, "consensus_weight": "margin", "topology": "ring"},
        {"abstain": 0.5, "balance": 0.5, "consensus_weight": "agreement", "topology": "ring"},
        {"abstain": 0.5, "ballot": "coded", "probe_labels": "hidden", "tally_weights": "reliability"},
        {"probe_labels": "hidden", "topology": "ring", "hops": "all"},  # weighed by reliability: auto
        {"abstain": "below:0.3", "ballot": "packed", "topology": "ring", "hops": 2, "tally_weights": "reliability"},
    ],
    ids=str,
)
async def test_better_ballots_give_the_same_bits_and_bytes(options: dict[str, object], tmp_path: Path) -> None:
    await test_same_bits_and_same_bytes("tally", options, 4, tmp_path)


@pytest.mark.parametrize("ballot", ["byte", "coded"])
async def test_votes_past_two_bytes_give_the_same_bits_and_bytes(ballot: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(150, 4)).astype(np.float32), rng.integers(69_900, 70_000, 150)
    np.savez(tmp_path / "many.npz", x_train=x[:100], y_train=y[:100], x_test=x[100:], y_test=np.full(50, 69_999))
    data = {"data": f"npz:{tmp_path / 'many.npz'}", "partition": "iid", "probe_count": 20, "model": "mlp:2"}
    federation = small(nodes=3, rounds=4, eval_every=4, merge_every=0, ballot=ballot, **data)
    await run_as_simulated(federation, tmp_path)


async def test_merges_by_drift_come_in_the_same_rounds(tmp_path: Path) -> None:
    options = {"merge_when": "drift", "merge_threshold": 0.6, "merge_precision": "int8", "merge_every": 3}
    federation = small(nodes=4, eval_every=1, rounds=20, local_steps=5, lr=0.003, **options)
    simulated = await asyncio.to_thread(simulate, federation)
    merged = [line.round for line in simulated.lines if line.merged]
    assert 0 < len(merged) < 6  # it began and it stopped: peers that agree do not merge
    results = await run_all(make_daemons(federation, tmp_path))
    assert [result["parameters_sha256"] for result in results] == simulated.parameters_sha256
    assert sum(result["missed"] for result in results) == 0


async def test_one_that_wants_to_merge_alone_holds_nobody_up(tmp_path: Path) -> None:
    """As if it had heard other votes than the rest: it asks, hears them go on, and goes on too. No deadline passes."""
    federation = small(nodes=3, eval_every=8, merge_when="drift", merge_threshold=0.0)
    daemons = make_daemons(federation, tmp_path)
    eager = federation.model_copy(update={"merge_threshold": 1.0})
    odd = Daemon(eager, daemons[1].settings, membership=True, inherited=daemons[1].transport.inherited)
    odd.fields = daemons[1].fields  # it says that it has agreed to what the others have
    daemons[1].worker.shutdown()
    daemons[1] = odd
    results = await run_all(daemons, seconds=15)  # a deadline is 20
    assert all(result["finished"] and result["missed"] == 0 for result in results)
    assert odd.node.position.merged_at == 0
    assert odd.node.ledger.total_sent(Stage.ANNOUNCE).messages == 2 * 5  # in rounds 4 to 8


async def test_an_automatic_warm_up_opens_alike(tmp_path: Path) -> None:
    federation = small(nodes=4, rounds=40, warmup="auto", topology="ring", local_steps=5, eval_every=39)
    simulated = await asyncio.to_thread(simulate, federation)
    daemons = make_daemons(federation, tmp_path)
    results = await run_all(daemons)
    assert [result["parameters_sha256"] for result in results] == simulated.parameters_sha256
    opened = [daemon.node.position.warmup for daemon in daemons]
    assert all(round is not None and 0 < round < 40 for round in opened)
    assert all(daemon.node.ledger.total_sent(Stage.READY).messages for daemon in daemons)


@pytest.mark.parametrize("method", ["no-consensus", "feddf"])
async def test_a_neighbour_may_have_finished_before_the_others_were_all_there(method: str, tmp_path: Path) -> None:
    """Where nothing is sent nobody is waited for: node-1 plays to the end while its neighbours wait for node-3."""
    federation = small(nodes=4, method=method, merge_every=0, topology="ring")
    simulated = await asyncio.to_thread(simulate, federation)
    daemons = make_daemons(federation, tmp_path, barrier_timeout=2)  # one, from when its neighbours miss it
    waiting = [asyncio.create_task(daemons[rank].run()) for rank in (0, 2)]
    async with asyncio.timeout(30):
        first = await daemons[1].run()
        assert not any(task.done() for task in waiting)
        third = await daemons[3].run()
        results = [await waiting[0], first, await waiting[1], third]
    assert [result["parameters_sha256"] for result in results] == simulated.parameters_sha256


async def test_neighbours_known_by_address_alone_make_a_mesh(tmp_path: Path) -> None:
    """Without --topology a node knows its neighbours only; a mesh of such nodes still merges to the same bits."""
    listeners = [open_listener() for _ in range(3)]
    addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
    daemons = []
    for rank, (listener, address) in enumerate(zip(listeners, addresses, strict=True)):
        peers = ",".join(other for other in addresses if other != address)
        settings = DaemonSettings.parse({"listen": address, "peers": peers, "rank": rank, "out": tmp_path})
        daemons.append(Daemon(small(nodes=3), settings, membership=False, inherited=listener))
    results = await run_all(daemons)
    assert len({result["parameters_sha256"] for result in results}) == 1
    assert all(result["finished"] for result in results)
