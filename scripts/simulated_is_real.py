"""Simulated is real: `p2p-tally launch` and `p2p-tally simulate` give the same parameters for the same options.

Seven methods on three graphs, with and without merges, each launched as separate processes; and members that join and
leave. Takes about ten minutes on two cores. The tests make the same comparison with all daemons in one process, which
is faster.

    python scripts/simulated_is_real.py [--nodes 6] [--rounds 12]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import product

METHODS = ("tally", "fedmd", "fedavg", "fedprox", "rcfd", "feddf", "diloco")
GRAPHS = (["--topology", "mesh"], ["--topology", "ring"], ["--topology", "gossip", "--degree", "4"])

CHANGES = tuple(
    ["--topology", graph, "--join", "node-1@5,node-0@7", "--leave", "node-2@9"] for graph in ("mesh", "ring")
)


def shas(command: str, options: list[str], folder: str) -> list[str]:
    """The digests of the nodes' parameters after this command, run as a process."""
    line = [sys.executable, "-m", "p2p_tally", command, "--json", *options]
    done = subprocess.run(line, check=False, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(line)}\n{done.stderr}")
    found: list[str] = json.loads(done.stdout)["parameters_sha256"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=12)
    arguments = parser.parse_args()
    size = ["--nodes", str(arguments.nodes), "--rounds", str(arguments.rounds), "--warmup", "2"]
    started = time.monotonic()
    differing = 0
    cases = [*product(METHODS, GRAPHS, (0, 4)), *product(("tally", "diloco"), CHANGES, (0, 4))]
    for method, graph, merge_every in cases:
        options = [*size, "--method", method, *graph, "--merge-every", str(merge_every)]
        with tempfile.TemporaryDirectory() as folder:
            simulated, launched = (shas(command, options, folder) for command in ("simulate", "launch"))
        same = simulated == launched
        differing += not same
        merging = f"merges every {merge_every}" if merge_every else "no merges"
        print(f"{method:8} {graph[1]:7} {merging:15} {'same' if same else 'DIFFERENT'} {launched[0][:12]}", flush=True)
    print(
        f"{len(cases) - differing} of {len(cases)} the same "
        f"({arguments.nodes} nodes, {arguments.rounds} rounds, {time.monotonic() - started:.0f} s)"
    )
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
