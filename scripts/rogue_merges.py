"""What one member that lies in merges does to the others, with the plain mean and with the default of --robust-merge.

For every kind of lie: the honest nodes' accuracy at the end, how many different models they have, how many of their
merges were completed, and how many deadlines the longest merge took. In memory and in virtual time, so that a busy
machine changes nothing; with --sockets as daemons in one process over real sockets with a deadline of one second, and
then with the seconds of the run. The lies are those of tests/node/rogue.py, which the tests use too.

    python scripts/rogue_merges.py [--nodes 6] [--rounds 60] [--only TEXT] [--rules off,auto] [--sockets]
    python scripts/rogue_merges.py --random 40 --rounds 30 --rules auto    # which messages, and to whom, is drawn
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1] / "tests" / "node")]

from conftest import make_daemons  # noqa: E402
from rogue import KINDS, LIAR, make_rogue, withholds_at_random  # noqa: E402
from rogue_time import play_in_memory  # noqa: E402

from p2p_tally.config import Federation  # noqa: E402

# Shares of what it sends that a liar withholds at random, one after the other.
SHARES = (0.02, 0.05, 0.1, 0.3, 0.6)
LIES = KINDS | {"a fifth of all withheld at random": withholds_at_random(0, 0.2)}


def play_virtually(federation: Federation, kind: str | None) -> str:
    found = play_in_memory(federation, {} if kind is None else {LIAR: LIES[kind]})
    merges = f"{found.completed} of {found.due} merges"
    return f"{100 * found.accuracy:5.1f} %, {found.models} models, {merges}, {max(found.deadlines):.2f} deadlines"


async def play(federation: Federation, kind: str | None) -> str:
    with tempfile.TemporaryDirectory() as folder:
        daemons = make_daemons(federation, Path(folder), barrier_timeout=1, checkpoint_every=0)
        others = [daemon for rank, daemon in enumerate(daemons) if rank != LIAR]
        if kind is not None:
            make_rogue(daemons[LIAR].node, LIES[kind])
        started = time.monotonic()
        lying = asyncio.create_task(daemons[LIAR].run())
        await asyncio.gather(*(daemon.run() for daemon in others))
        seconds = time.monotonic() - started
        daemons[LIAR].stop()
        await lying
    accuracy = 100 * np.mean([daemon.learner.evaluate().accuracy for daemon in others])
    models = len({daemon.learner.export().tobytes() for daemon in others})
    due = federation.rounds // (federation.merge_every or 1) * len(others)
    merged = due - sum(daemon.metrics.skipped_merges for daemon in others)
    return f"{accuracy:5.1f} %, {models} models, {merged:.0f} of {due} merges, {seconds:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", default="", help="kinds whose name holds this text")
    parser.add_argument("--rules", default="off,auto")
    parser.add_argument("--random", type=int, default=0, help="so many liars that withhold at random, and no others")
    parser.add_argument("--sockets", action="store_true", help="daemons over real sockets")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    if arguments.random:
        LIES.clear()
        for seed in range(arguments.random):
            share = SHARES[seed % len(SHARES)]
            LIES[f"{100 * share:.0f} % withheld, seed {seed}"] = withholds_at_random(seed, share)
    kinds: list[str | None] = [None, *(kind for kind in LIES if arguments.only in kind)]
    for kind in kinds:
        for rule in arguments.rules.split(","):
            # The last merge is in the last round, so that all models are the same if all merged.
            federation = Federation(
                nodes=arguments.nodes, rounds=arguments.rounds, warmup=0, merge_every=10, eval_every=arguments.rounds,
                robust_merge=rule,
            )  # fmt: skip
            found = asyncio.run(play(federation, kind)) if arguments.sockets else play_virtually(federation, kind)
            print(f"{kind or 'nobody lies':36} {rule:5} {found}", flush=True)


if __name__ == "__main__":
    main()
