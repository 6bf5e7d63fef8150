"""What the messages cost: 8 daemons that vote, against the same 8 that do the same computation and send nothing.

Both train the small CNN on images of 32 x 32; `no-consensus` takes the same step on the same probes without asking
anybody. The time is that of the round loops, without start-up and evaluation. The two take turns in one run.

    python scripts/bench/overhead.py [--nodes 8] [--rounds 60] [--turns 3]
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np

from p2p_tally.config import Federation, ServiceSettings
from runner.launch import launch


def write_images(path: Path, nodes: int) -> None:
    """Noise, with a class that can be learned: what is measured does not depend on it."""
    generator = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 200 * nodes), ("test", 64)):
        labels = generator.integers(10, size=count)
        images = generator.standard_normal((count, 3, 32, 32), dtype=np.float32)
        images[:, 0, :10, 0] += labels[:, None]
        arrays |= {f"x_{split}": images, f"y_{split}": labels}
    np.savez(path, **arrays)


def loop_seconds(method: str, data: Path, out: Path, nodes: int, rounds: int, topology: str) -> float:
    """Seconds that a node's rounds took, the mean over the nodes."""
    federation = Federation(
        method=method,
        nodes=nodes,
        topology=topology,
        rounds=rounds,
        warmup=0,
        merge_every=0,
        batch=32,
        data=f"npz:{data}",
        model="cnn",
        partition="iid",
        eval_every=rounds,
    )
    run = launch(federation, ServiceSettings(out=out, device="cpu", checkpoint_every=0))
    spent = dict.fromkeys(("train", "vote", "barrier", "distill"), 0.0)
    for line in run.lines:
        for phase in spent:
            spent[phase] += line.seconds.get(phase, 0.0)
    return sum(spent.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--topology", default="mesh")
    arguments = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "images.npz"
        write_images(data, arguments.nodes)
        for turn in range(arguments.turns):
            seconds = {}
            # Who goes first changes, so that a machine that slows down over time favours neither.
            order = ("no-consensus", "tally") if turn % 2 == 0 else ("tally", "no-consensus")
            for method in order:
                out = Path(folder) / f"{method}-{turn}"
                seconds[method] = loop_seconds(method, data, out, arguments.nodes, arguments.rounds, arguments.topology)
            ratios.append(seconds["tally"] / seconds["no-consensus"])
            print(
                f"turn {turn + 1}: no-consensus {seconds['no-consensus']:.2f} s, tally {seconds['tally']:.2f} s, "
                f"ratio {ratios[-1]:.3f}",
                flush=True,
            )
    print(
        f"tally / no-consensus: median {statistics.median(ratios):.3f} ({arguments.nodes} daemons, "
        f"{arguments.topology}, CNN on 32 x 32, {arguments.rounds} rounds; at most 1.10 wanted)"
    )


if __name__ == "__main__":
    main()
