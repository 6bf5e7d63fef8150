"""What one member that lies in merges does to the others, with the plain mean and with the default of --robust-merge.

Daemons in one process over real sockets. For every kind of lie: the honest nodes' accuracy at the end, how many
different models they have, how many of their merges were completed, and the seconds that the run took. The lies are
those of tests/node/rogue.py, which the tests use too.

    python scripts/rogue_merges.py [--nodes 6] [--rounds 60] [--only TEXT]
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1] / "tests" / "node")]

from conftest import make_daemons  # noqa: E402
from rogue import KINDS, LIAR, make_rogue  # noqa: E402

from p2p_tally.config import Federation  # noqa: E402


async def play(federation: Federation, kind: str | None) -> str:
    with tempfile.TemporaryDirectory() as folder:
        daemons = make_daemons(federation, Path(folder), barrier_timeout=1, checkpoint_every=0)
        others = [daemon for rank, daemon in enumerate(daemons) if rank != LIAR]
        if kind is not None:
            make_rogue(daemons[LIAR].node, KINDS[kind])
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
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    kinds: list[str | None] = [None, *(kind for kind in KINDS if arguments.only in kind)]
    for kind in kinds:
        for rule in ("off", "auto"):
            # The last merge is in the last round, so that all models are the same if all merged.
            federation = Federation(
                nodes=arguments.nodes, rounds=arguments.rounds, warmup=0, merge_every=10, eval_every=arguments.rounds,
                robust_merge=rule,
            )  # fmt: skip
            found = asyncio.run(play(federation, kind))
            print(f"{kind or 'nobody lies':36} {rule:5} {found}", flush=True)


if __name__ == "__main__":
    main()
