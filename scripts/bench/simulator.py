"""What the simulator costs, compared with the bare training work: one ratio, measured in one run.

The bare loop does the same steps with plain torch: K AdamW steps for each peer and round, one forward pass on the
probes of the round, the tally, the distillation step, the merges. No frames, no barriers, no ledger, no event loop.
Neither side evaluates. The two alternate in short turns, so that a slow phase of the machine affects both.

    python scripts/bench/simulator.py [--nodes 8] [--rounds 60] [--turns 15]
"""

import argparse
import statistics
import time

import torch
from torch.nn import functional as F

from p2p_tally.config import Federation
from p2p_tally.ids import ranked_names
from p2p_tally.learning import models
from p2p_tally.learning.setup import prepare
from p2p_tally.runner.simulation.simulate import simulate


def bare(federation: Federation) -> float:
    """Seconds of the plain loop."""
    task = prepare(federation)
    federation = task.federation
    names = ranked_names(federation.nodes)
    peers = [
        models.build(federation, task.default_model, task.input_shape, task.classes, seed)
        for seed, _ in enumerate(names)
    ]
    optimisers = [
        torch.optim.AdamW(peer.parameters(), lr=federation.lr, weight_decay=federation.weight_decay, fused=True)
        for peer in peers
    ]
    shards = [shard.take(torch.arange(len(shard))) for shard in task.shards]
    pool_x, pool_y = task.probes.examples.take(torch.arange(len(task.probes.examples)))
    generator = torch.Generator().manual_seed(0)
    started = time.perf_counter()
    for r in range(1, federation.rounds + 1):
        for peer, optimiser, (x, y) in zip(peers, optimisers, shards, strict=True):
            for _ in range(federation.local_steps):
                batch = torch.randint(len(x), (federation.batch,), generator=generator)
                optimiser.zero_grad()
                F.cross_entropy(peer(x[batch]), y[batch]).backward()
                optimiser.step()
        if r > federation.warmup:
            sample = torch.randint(len(pool_x), (federation.probes_per_round,), generator=generator)
            x, y = pool_x[sample], pool_y[sample]
            logits = [peer(x) for peer in peers]
            votes = torch.stack([logit.argmax(-1) for logit in logits])
            target = F.one_hot(votes, task.classes).float().mean(0)
            for optimiser, logit in zip(optimisers, logits, strict=True):
                optimiser.zero_grad()
                logs = logit.log_softmax(-1)
                divergence = (torch.xlogy(target, target) - target * logs).sum(-1).mean()
                loss = federation.alpha * F.nll_loss(logs, y) + (1 - federation.alpha) * divergence
                loss.backward()
                optimiser.step()
            if federation.merge_every and r % federation.merge_every == 0:
                with torch.no_grad():
                    for group in zip(*(peer.parameters() for peer in peers), strict=True):
                        mean = torch.stack([parameter.data for parameter in group]).mean(0)
                        for parameter in group:
                            parameter.copy_(mean)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--topology", default="mesh")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    federation = Federation(
        nodes=arguments.nodes,
        rounds=arguments.rounds,
        eval_every=arguments.rounds - 1,
        topology=arguments.topology,
    )
    ratios = []
    for turn in range(arguments.turns + 1):
        plain, simulated = bare(federation), simulate(federation).seconds
        if turn:  # the first turn warms caches and allocators up
            ratios.append(simulated / plain)
            print(f"turn {turn}: bare {plain:.2f} s, simulated {simulated:.2f} s, ratio {ratios[-1]:.3f}")
    print(
        f"simulator / bare training: median {statistics.median(ratios):.3f} "
        f"(digits, {arguments.nodes} nodes, {arguments.topology}, {arguments.rounds} rounds; at most 1.15 wanted)"
    )


if __name__ == "__main__":
    main()
