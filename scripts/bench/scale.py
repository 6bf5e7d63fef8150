"""How the stacked engine scales: its speed compared with exact and with a bare loop; time and bytes by number of peers.

The bare loop is plain torch, batched by hand, with the same arithmetic: K AdamW steps a round with the backward pass
written out, the tally over the same graph, the distillation step, the same evaluation and measures. It has no schedule,
no generator for each peer, no ledger and no lines. The data is digits; each peer draws 8 examples (`resample:8`). The
runs that are compared alternate, so that a slow phase of the machine affects both. CPU seconds are printed beside those
of the clock, for machines that are shared.

    python scripts/bench/scale.py [--threads 2] [--rounds 8] [--turns 5] [--largest 1000]
    python scripts/bench/scale.py --crowd 10000 [--set merge_every=4] [--set ballot=coded] [--eval-every 10]
    python scripts/bench/scale.py --crowd 10000 --actors 2 [--set merge_every=4] [--eval-every 10]

The second form plays one large federation twice, once evaluated in every round (the default) and once in the last round
only; with `--eval-every E` once. It says how long the first round is in coming, how fast rounds are, and what memory
they take. Beside it stands what the machine allows: the arithmetic of a round at the rate of a large matrix product,
and the bytes that it must move at the rate of a large copy, both measured in the same run.

With `--actors K` it plays the federation once, first in this process, with as many threads, and then in K actors
of a Ray on this machine (`--workers ray:K`): processor seconds of all processes, bytes that went between them, memory
of an actor, and whether both end with the same parameters.
"""

import argparse
import math
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256

import numpy as np
import psutil
import torch
from torch.nn.functional import one_hot

from p2p_tally.config import EngineName, Federation
from p2p_tally.learning.consensus import mean_pairwise_kl, measure
from p2p_tally.learning.data import Examples
from p2p_tally.learning.graph import make_topology
from p2p_tally.learning.optimiser import FlatAdamW
from p2p_tally.learning.schedule import merges
from p2p_tally.learning.setup import prepare
from p2p_tally.runner.ray.crowd import crowd_on_ray
from p2p_tally.runner.runs.round_lines import COMPARED_PROBES, RoundLog
from p2p_tally.runner.runs.run import Run
from p2p_tally.runner.simulation.simulate import Exact
from p2p_tally.runner.stacked.engine import Stacked
from p2p_tally.runner.stacked.shared_layer import shared_layer

SIZES = (8, 32, 128, 512, 1000)
TOPOLOGIES = ("mesh", "ring", "gossip")
INPUTS = HIDDEN = 64  # of the digits and the model for them


def problem(nodes: int, topology: str, rounds: int) -> Federation:
    return Federation(
        nodes=nodes, topology=topology, rounds=rounds, warmup=0, merge_every=rounds, partition="resample:8"
    )


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def play(federation: Federation, engine: EngineName, threads: int) -> tuple[Run, float, float]:
    """The rounds of a run, timed without set-up."""
    torch.set_num_threads(1)
    task, topology = prepare(federation), make_topology(federation)
    run = Run(task.federation, [f"node-{rank}" for rank in range(federation.nodes)])
    players = Stacked(task, topology, "cpu", threads) if engine == "stacked" else Exact(task, topology, "cpu")
    wall, cpu = timed(lambda: players.play(RoundLog(task, run, [])))
    return run, wall, cpu


class Bare:
    """The bare loop; every matrix product is over all peers."""

    def __init__(self, federation: Federation) -> None:
        task, topology = prepare(federation), make_topology(federation)
        self.task, self.federation = task, task.federation
        nodes = self.nodes = federation.nodes
        self.sizes = [HIDDEN * INPUTS, HIDDEN, task.classes * HIDDEN, task.classes]
        self.vector = torch.randn(nodes, sum(self.sizes)).mul_(0.1)  # [N, W]
        gradient = torch.zeros_like(self.vector)
        self.optimiser = FlatAdamW(self.vector.view(-1), gradient.view(-1), federation.lr, federation.weight_decay)
        self.w1, self.b1, self.w2, self.b2 = self._cut(self.vector)
        self.gradients = self._cut(gradient)
        private = [labelled(shard, 8) for shard in task.shards]
        self.private = torch.stack([x for x, _ in private])  # [N, 8, D]
        self.answers = torch.stack([y for _, y in private])  # [N, 8]
        self.test = labelled(task.test, len(task.test))
        self.pool = labelled(task.probes.examples, COMPARED_PROBES)
        edges = [(a, b) for a in range(nodes) for b in (a, *(_rank(p) for p in topology.neighbours(f"node-{a}")))]
        self.near = torch.sparse_coo_tensor(torch.tensor(edges).T, torch.ones(len(edges)), check_invariants=False)
        self.near = self.near.coalesce()
        self.members = torch.tensor(topology.degrees()).add(1).view(nodes, 1, 1)

    def _cut(self, flat: torch.Tensor) -> list[torch.Tensor]:
        w1, b1, w2, b2 = torch.split(flat, self.sizes, 1)
        return [w1.view(self.nodes, HIDDEN, INPUTS), b1.unsqueeze(2), w2.view(self.nodes, -1, HIDDEN), b2.unsqueeze(2)]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.baddbmm(self.b1, self.w1, x).relu_()  # [N, H, B]
        return h, torch.baddbmm(self.b2, self.w2, h)  # [N, C, B]

    def step(self, x: torch.Tensor, h: torch.Tensor, slope: torch.Tensor) -> None:
        w1, b1, w2, b2 = self.gradients
        torch.bmm(slope, h.mT, out=w2)
        torch.sum(slope, 2, keepdim=True, out=b2)
        back = torch.bmm(self.w2.mT, slope).mul_(h > 0)
        torch.bmm(back, x.mT, out=w1)
        torch.sum(back, 2, keepdim=True, out=b1)
        self.optimiser.step()

    def rounds(self) -> None:
        for r in range(1, self.federation.rounds + 1):
            self.train()
            self.vote(r)
            if merges(self.federation, r):
                self.vector.copy_((self.near @ self.vector).div_(self.members.squeeze(2)))
            self.evaluate()

    def train(self) -> None:
        everyone, batch = torch.arange(self.nodes)[:, None], self.federation.batch
        for _ in range(self.federation.local_steps):
            drawn = torch.randint(8, (self.nodes, batch))
            x, y = self.private[everyone, drawn].mT, self.answers[everyone, drawn]
            h, logits = self.forward(x)
            slope = logits.softmax(1).scatter_add_(1, y.unsqueeze(1), torch.full((self.nodes, 1, batch), -1.0))
            self.step(x, h, slope.div_(batch))

    def vote(self, r: int) -> None:
        probes, labels = self.task.probes.sample(r)
        assert labels is not None
        x = probes.T.expand(self.nodes, -1, -1)
        h, logits = self.forward(x)
        ballots = one_hot(logits.mT.argmax(-1), self.task.classes).float()  # [N, P, C]
        consensus = (self.near @ ballots.flatten(1)).view_as(ballots) / self.members
        target = (0.5 * consensus + 0.5 * one_hot(labels, self.task.classes)).mT
        self.step(x, h, logits.softmax(1).sub_(target).div_(len(labels)))

    def evaluate(self) -> None:
        x, y = self.test
        logs = self.forward(x.T.expand(self.nodes, -1, -1))[1].log_softmax(1)
        own = logs.gather(1, y.expand(self.nodes, 1, -1)).squeeze(1)
        (own == logs.amax(1)).sum(1).tolist()
        own.sum(1).tolist()
        x, y = self.pool
        logs = self.forward(x.T.expand(self.nodes, -1, -1))[1].log_softmax(1).mT.contiguous()
        measure(logs.argmax(-1).numpy(), self.task.classes, y.numpy())
        mean_pairwise_kl(logs)


def labelled(examples: Examples, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = examples.take(torch.arange(min(most, len(examples))))
    assert y is not None
    return x, y


def _rank(name: str) -> int:
    return int(name.partition("-")[2])


def against_bare(nodes: int, rounds: int, turns: int, threads: int) -> None:
    federation = problem(nodes, "gossip", rounds)
    ratios, cpu_ratios, best = [], [], math.inf
    for turn in range(turns + 1):
        loop = Bare(federation)
        torch.set_num_threads(threads)
        plain, plain_cpu = timed(loop.rounds)
        del loop
        _, wall, cpu = play(federation, "stacked", threads)
        if turn:  # the first turn warms caches and allocators up
            ratios.append(wall / plain)
            cpu_ratios.append(cpu / plain_cpu)
            best = min(best, wall)
            print(f"  turn {turn}: bare {plain / rounds:.3f} s a round (CPU {plain_cpu / rounds:.3f}), "
                  f"stacked {wall / rounds:.3f} (CPU {cpu / rounds:.3f})")  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{nodes} peers, gossip, {threads} threads: stacked / bare median {statistics.median(ratios):.2f} by the clock "
        f"and {statistics.median(cpu_ratios):.2f} in CPU (at most 1.5 wanted); best {rounds / best:.2f} rounds "
        f"a second (2 wanted); peak memory {peak:.2f} GiB, the bare loop's included (4 allowed)"
    )


def against_exact(nodes: int, rounds: int, turns: int, threads: int, wanted: float) -> None:
    federation = problem(nodes, "mesh", rounds)
    ratios, cpu_ratios = [], []
    for turn in range(turns + 1):
        _, exact, exact_cpu = play(federation, "exact", threads)
        _, stacked, stacked_cpu = play(federation, "stacked", threads)
        if turn:
            ratios.append(exact / stacked)
            cpu_ratios.append(exact_cpu / stacked_cpu)
    print(
        f"{nodes} peers, mesh: stacked is {statistics.median(ratios):.1f} times as fast as exact by the clock, "
        f"{statistics.median(cpu_ratios):.1f} in CPU ({wanted:g} wanted); last {1000 * exact / rounds:.1f} and "
        f"{1000 * stacked / rounds:.1f} ms a round"
    )


def growth(sizes: list[int], rounds: int, threads: int) -> None:
    print("topology  peers  ms a round (CPU)   vote bytes a peer and round   merge bytes a peer")
    votes: dict[str, list[float]] = {}
    for topology in TOPOLOGIES:
        for nodes in sizes:
            run, wall, cpu = play(problem(nodes, topology, rounds), "stacked", threads)
            sent = run.lines[-1].sent
            vote = sent["vote"]
            merge = sum(sent[stage]["payload"] for stage in ("vector", "scatter", "gather") if stage in sent)
            votes.setdefault(topology, []).append(vote["payload"])
            print(f"{topology:9} {nodes:5}  {1e3 * wall / rounds:8.1f} ({1e3 * cpu / rounds:8.1f})   "
                  f"{vote['payload']:12.1f} payload {vote['framed']:10.1f} framed  {merge:12.0f}")  # fmt: skip
    against = {
        "mesh": ("N", sizes),
        "ring": ("N", sizes),
        "gossip": ("log2 N", [math.ceil(math.log2(n)) for n in sizes]),
    }
    for topology, (name, values) in against.items():
        slope = np.polyfit(np.log(values), np.log(votes[topology]), 1)[0]
        print(f"{topology}: votes per peer grow as ({name})^{slope:.2f}")


def machine(threads: int) -> tuple[float, float]:
    """Operations and bytes a second: the best of a few large matrix products by either library that torch has for them,
    and of a few large copies."""
    torch.set_num_threads(threads)
    one, other = torch.randn(1536, 1536), torch.randn(1536, 1536)
    source, copy = torch.zeros(1 << 26), torch.zeros(1 << 26)
    product = min(timed(work)[0] for work in 8 * [lambda: torch.mm(one, other), lambda: shared_layer(one, other, None)])
    moved = min(timed(lambda: copy.copy_(source))[0] for _ in range(8))
    torch.set_num_threads(1)
    return 2 * 1536**3 / product, 2 * source.nbytes / moved


def demanded(federation: Federation, test: int, probes: int, classes: int) -> tuple[float, float, float]:
    """Of a peer and round: operations of its steps, operations of its evaluation, and bytes that its steps move.

    A step multiplies each weight with each example forward and for the gradient, and the second layer's once more. Its
    parameters and AdamW's two moments are read and written once for all local steps, and once for the step on probes.
    """
    first, second = INPUTS * HIDDEN, HIDDEN * classes
    examples = federation.local_steps * federation.batch + federation.probes_per_round
    steps = 2 * examples * (2 * (first + second) + second)
    vector = 4 * (first + HIDDEN + second + classes)
    return steps, 2 * (test + probes) * (first + second), vector * (2 * 6 + 1)


def crowd(nodes: int, rounds: int, threads: int, more: dict[str, str], cadences: list[int]) -> None:
    """A large federation: time to the first round, rounds a second, memory, and what the machine allows."""
    operations, moves = machine(threads)
    print(f"machine, {threads} threads: {operations / 1e9:.0f} G operations a second, {moves / 2**30:.1f} GiB a second")
    chosen = {"nodes": nodes, "topology": "gossip", "rounds": rounds, "warmup": 0, "merge_every": 0}
    chosen |= {"partition": "resample:8", **more}
    for cadence in cadences:
        how = {1: "in every round", rounds: "in the last round"}.get(cadence, f"every {cadence} rounds")
        federation = Federation.parse({**chosen, "eval_every": cadence})
        began, began_cpu = time.perf_counter(), time.process_time()
        task, topology = prepare(federation), make_topology(federation)
        players = Stacked(task, topology, "cpu", threads)
        ready, ready_cpu = time.perf_counter() - began, time.process_time() - began_cpu
        lines = RoundLog(task, Run(task.federation, [f"node-{rank}" for rank in range(nodes)]), [])
        wall, cpu = timed(partial(players.play, lines))
        steps, survey, moved = demanded(task.federation, len(task.test), len(lines.probes), task.classes)
        evaluations = -(-rounds // cadence)
        least = nodes * max((steps + survey * evaluations / rounds) / operations, moved / moves)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{nodes} peers, evaluated {how}: set up in {ready:.1f} s (CPU {ready_cpu:.1f}), {rounds / wall:.2f} "
            f"rounds a second (CPU {cpu / rounds:.2f} s a round, so {threads * rounds / cpu:.2f} on free cores), "
            f"peak memory {peak:.2f} GiB\n"
            f"  at the machine's rates {1 / least:.2f} rounds a second: {nodes * steps / 1e9:.0f} G operations in "
            f"steps, {nodes * survey / 1e9:.0f} in an evaluation, {nodes * moved / 2**30:.1f} GiB moved",
            flush=True,
        )


def crowd_in_actors(nodes: int, rounds: int, actors: int, more: dict[str, str], cadence: int) -> None:
    """A large federation here with so many threads, and then in so many actors of Ray."""
    torch.set_num_threads(1)
    chosen = {"nodes": nodes, "topology": "gossip", "rounds": rounds, "warmup": 0, "merge_every": 0}
    federation = Federation.parse({**chosen, "partition": "resample:8", "eval_every": cadence, **more})
    task, topology = prepare(federation), make_topology(federation)
    lines = partial(RoundLog, task, Run(task.federation, [f"node-{rank}" for rank in range(nodes)]), [])

    def digest(players: Stacked) -> str:
        return sha256("".join(learner.parameters.sha256() for learner in players.peers()).encode()).hexdigest()

    players = Stacked(task, topology, "cpu", actors)
    wall, cpu = timed(partial(players.play, lines()))
    here = digest(players)
    print(
        f"{nodes} peers here, {actors} threads: {wall / rounds:.2f} s a round, {cpu / rounds:.2f} s of processor time"
    )
    del players
    began = time.perf_counter()
    with crowd_on_ray("local", actors, federation, task) as crowd:
        players = Stacked(task, topology, "cpu", 1, place=crowd.place)
        ready = time.perf_counter() - began
        processes = [
            one for one in psutil.Process().children(recursive=True) if one.cmdline()[0].startswith("ray::Part")
        ]
        before = sum(sum(one.cpu_times()[:2]) for one in processes)
        wall, cpu = timed(partial(players.play, lines()))
        theirs = sum(sum(one.cpu_times()[:2]) for one in processes) - before
        moved, memory = crowd.conductor.exchanged, max(one.memory_info().rss for one in processes)
        same = "the same parameters" if digest(players) == here else "OTHER PARAMETERS"
    print(
        f"{nodes} peers in {actors} actors: started in {ready:.1f} s, {wall / rounds:.2f} s a round, "
        f"{(cpu + theirs) / rounds:.2f} s of processor time ({cpu / rounds:.2f} where the record is kept), "
        f"{moved / rounds / 1e6:.2f} MB a round from process to process, {memory / 2**30:.2f} GiB in an actor; {same}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--largest", type=int, default=1000)
    parser.add_argument("--crowd", type=int, metavar="PEERS", help="one large federation instead")
    parser.add_argument("--actors", type=int, metavar="K", help="of --crowd: in actors of Ray, and without")
    parser.add_argument("--eval-every", type=int, metavar="ROUNDS", help="of --crowd; else twice, 1 and the last round")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="more options for --crowd")
    arguments = parser.parse_args()
    if arguments.crowd:
        more = dict(one.split("=", 1) for one in arguments.set)
        cadences = [1, arguments.rounds] if arguments.eval_every is None else [arguments.eval_every]
        if arguments.actors:
            rest = arguments.actors, more, arguments.eval_every or arguments.rounds
            crowd_in_actors(arguments.crowd, arguments.rounds, *rest)
            return
        crowd(arguments.crowd, arguments.rounds, arguments.threads, more, cadences)
        return
    rounds, turns, threads = arguments.rounds, arguments.turns, arguments.threads
    sizes = [size for size in SIZES if size <= arguments.largest]
    against_bare(sizes[-1], rounds, turns, threads)
    against_exact(8, 10 * rounds, turns, threads, wanted=4)
    against_exact(64, rounds, turns, threads, wanted=10)
    growth(sizes, rounds, threads)


if __name__ == "__main__":
    main()
