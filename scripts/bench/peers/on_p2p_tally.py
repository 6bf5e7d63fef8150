"""The job on p2p-tally: one command, and a mark for each line of its rounds.jsonl."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from digits_job import BATCH, DATA, LEARNING_RATE, NODES, SPARE, STEPS, WEIGHT_DECAY, mark

COMMANDS = {
    "exact": ["simulate", "--engine=exact"],
    "stacked": ["simulate", "--engine=stacked"],
    "launch": ["launch"],
}


def command(kind: str, rounds: int, eval_every: int, out: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "p2p_tally", *COMMANDS[kind]),
        *(f"--nodes={NODES}", "--topology=mesh", "--method=fedavg", "--merge-every=1", "--robust-merge=off"),
        *(f"--data=npz:{os.environ[DATA]}", "--partition=iid", f"--probe-count={SPARE}", "--device=cpu"),
        *(f"--batch={BATCH}", f"--local-steps={STEPS}", f"--lr={LEARNING_RATE}", f"--weight-decay={WEIGHT_DECAY}"),
        *(f"--rounds={rounds}", f"--eval-every={eval_every}", f"--out={out}"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=list(COMMANDS))
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--eval-every", type=int, required=True)
    arguments = parser.parse_args()
    out = Path("run")
    process = subprocess.Popen(
        command(arguments.kind, arguments.rounds, arguments.eval_every, out), stdout=subprocess.DEVNULL
    )
    lines, read = out / "rounds.jsonl", 0
    while True:
        ended = process.poll() is not None  # asked first: what it wrote before its end is then read below
        text = lines.read_text(encoding="utf-8") if lines.exists() else ""
        complete = text.splitlines()[: text.count("\n")]
        for line in complete[read:]:
            found = json.loads(line)
            # A mean over the nodes, since the beginning.
            mark(found["round"], statistics.fmean(found["accuracy"]), ledger=NODES * found["framed_bytes"])
        read = len(complete)
        if ended:
            sys.exit(process.returncode)
        time.sleep(0.002)


if __name__ == "__main__":
    main()
