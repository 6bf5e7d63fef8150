"""Same options, same bits: records the results of simulations, and compares them after a change.

Every method on four graphs, with and without merges, with both engines, and the options that change a round. For each
case it keeps the digest of every node's parameters, and the bytes sent by kind. Takes about a minute.

    python scripts/same_bits.py record before.json     # with the code before the change
    python scripts/same_bits.py compare before.json    # with the code after it; exit code 1 if anything differs
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from p2p_tally import Federation, simulate

METHODS = ("tally", "local", "no-consensus", "fedavg", "fedprox", "fedmd", "rcfd", "feddf", "diloco")
GRAPHS: tuple[dict[str, Any], ...] = (
    {"topology": "mesh"},
    {"topology": "ring"},
    {"topology": "gossip", "degree": 4},
    {"topology": "one-peer-exponential"},
)
SIZE: dict[str, Any] = {"nodes": 8, "rounds": 12, "warmup": 2, "merge_every": 4, "local_steps": 2, "batch": 8}
# The rules against members that lie are off: what is compared is everything else.
SIZE |= {"robust_merge": "off", "tally_weights": "uniform"}
# Options that change a round or its bytes, besides method, graph and merges.
OPTIONS: tuple[dict[str, Any], ...] = (
    {"topology": "ring", "hops": 2},
    {"topology": "ring", "hops": "all"},
    {"topology": "ring", "hops": 2, "method": "fedmd"},
    {"topology": "one-peer-exponential", "hops": 2},
    {"topology": "ring", "hops": 2, "warmup": "auto", "merge_every": 0},
    {"topology": "ring", "tally_weights": "mixing"},
    {"topology": "ring", "tally_weights": "mixing", "hops": 2},
    {"topology": "gossip", "degree": 4, "tally_weights": "mixing", "method": "rcfd"},
    {"topology": "ring", "merge_over": "ring"},
    {"topology": "torus", "merge_over": "ring", "method": "fedavg"},
    {"merge_precision": "bfloat16"},
    {"merge_precision": "int8"},
    {"merge_precision": "int8", "topology": "ring"},
    {"merge_precision": "int8", "merge_top_k": 0.1},
    {"merge_precision": "int8", "merge_top_k": 0.1, "method": "diloco"},
    {"merge_top_k": 0.25},
    {"merge_when": "drift", "merge_threshold": 0.95, "merge_every": 2},
    {"merge_when": "drift", "merge_threshold": 0.95, "merge_every": 2, "method": "fedmd", "soft_precision": "int8"},
    {"warmup": "auto"},
    {"warmup": "auto", "topology": "ring"},
    {"warmup": "auto", "topology": "gossip", "degree": 4, "method": "fedmd"},
    {"warmup": "auto", "method": "no-consensus"},
    {"ballot": "packed"},
    {"ballot": "coded"},
    {"ballot": "coded", "topology": "ring", "hops": 2},
    {"soft_precision": "float16", "method": "fedmd"},
    {"soft_precision": "int8", "method": "feddf"},
    {"soft_precision": "int8", "method": "rcfd"},
    {"top_k": 1, "method": "rcfd"},
    {"disagreement_weight": 1.0},
    {"inverse_agreement": 0.5},
    {"inverse_agreement": 0.5, "topology": "ring"},
    {"alpha": 0.0, "kl_decay": 6},
    {"alpha": 1.0},
    {"kl_decay": 4},
    {"clip": 0.5},
    {"model": "mlp:16,mlp:24x2", "merge_every": 0},
    {"data": "digits", "nodes": 1},
    {"nodes": 2},
    {"nodes": 3, "topology": "ring", "merge_over": "ring"},
    {"partition": "iid", "seed": 3},
    {"eval_every": 5, "merge_every": 3},
)


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and options of the cases; each runs with both engines."""
    for method, graph, merge_every in product(METHODS, GRAPHS, (0, 4)):
        name = f"{method} {graph['topology']} {'merging' if merge_every else 'not merging'}"
        yield name, {"method": method, **graph, "merge_every": merge_every}
    for options in OPTIONS:
        yield " ".join(f"{key}={value}" for key, value in options.items()), options


def outcome(options: dict[str, Any], engine: Any) -> dict[str, Any]:
    """The results of a run: parameters of every node, and bytes by kind, mean over the peers."""
    start = "auto" if options.get("method") == "diloco" else "own"
    run = simulate(Federation(**{**SIZE, "start": start, **options}), engine=engine)
    sent: dict[str, dict[str, float]] = {}
    for line in run.lines:
        for kind, counts in line.sent.items():
            into = sent.setdefault(kind, {"payload": 0.0, "framed": 0.0})
            for accounting, count in counts.items():
                into[accounting] += count
    totals = {"payload": run.lines[-1].payload_bytes, "framed": run.lines[-1].framed_bytes}
    return {"parameters_sha256": run.parameters_sha256, "sent": sent, "total": totals}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    arguments = parser.parse_args()
    started = time.monotonic()
    before = json.loads(arguments.file.read_text()) if arguments.what == "compare" else {}
    found: dict[str, Any] = {}
    differing = 0
    for (name, options), engine in product(cases(), ("exact", "stacked")):
        key = f"{engine}: {name}"
        if arguments.only not in key:
            continue
        found[key] = outcome(options, engine)
        if before and found[key] != before.get(key):
            differing += 1
            print(f"DIFFERENT {key}", flush=True)
    if arguments.what == "record":
        arguments.file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"{len(found) - differing} of {len(found)} the same" if before else f"{len(found)} recorded", end=" ")
    print(f"({time.monotonic() - started:.0f} s)")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
