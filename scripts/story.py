"""The table of the README: every cell of a preset, simulated over seeds, as Markdown.

python scripts/story.py [--preset default] [--seeds 0,1,2] [--jobs 2]
"""

import argparse
import statistics
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from runner.experiments import Cell, load_experiment
from runner.payload import cell_bytes
from runner.simulate import simulate


def run_cell(cell: Cell, seed: int) -> dict[str, Any]:
    return simulate(cell.federation.model_copy(update={"seed": seed})).summary()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="default")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    cells = load_experiment(arguments.preset).cells
    with ProcessPoolExecutor(arguments.jobs) as pool:
        futures = {cell.name: [pool.submit(run_cell, cell, seed) for seed in seeds] for cell in cells}
        columns = "cell", "tail accuracy %", "spread", "bytes a peer, paper's accounting", "bytes a peer sends here"
        print(f"| {' | '.join(columns)} |")
        print("| --- | --- | --- | --- | --- |")
        for cell in cells:
            summaries = [future.result() for future in futures[cell.name]]
            tails = [summary["tail_accuracy"] for summary in summaries]
            spread = statistics.fmean(summary["cross_peer_std"] for summary in summaries)
            deviation = statistics.stdev(tails) if len(tails) > 1 else 0.0
            sent = statistics.fmean(summary["payload_bytes"] for summary in summaries)
            print(
                f"| `{cell.name}` | {statistics.fmean(tails):.1f} ± {deviation:.1f} | {spread:.1f} "
                f"| {cell_bytes(cell).payload_bytes:,} | {sent:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
