"""The same job on p2p-tally and on what people would use instead: digits, 8 nodes, FedAvg every round.

    python scripts/bench/peers/run.py [--only flower-deployed --only bare ...] [--keep FOLDER]

Makes an environment for each system (build/peers), runs the job on each, and prints one table. A bare torch loop runs
first and last: if its two rows differ, the machine was not quiet. A system that cannot be installed or fails has a row
that says why, after a second try. Systems that make rounds in seconds play few, those that make many a second play
more: the rounds are in the table, and the accuracy that the bare loop had after as many. At most 15 minutes, once the
environments are there.

It needs Linux, unshare and ip, and the right to make namespaces: each system has its own, so that the loopback device
counts its bytes alone, and nothing that it starts outlives it.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from digits_job import write_data
from environments import HERE, OWN, NoEnvironment, python_of
from table import Failed, Row, make_row, table
from watching import namespaces_work, watch

MINUTES = 15
LIMIT = 240.0  # seconds for one system


@dataclass(frozen=True)
class System:
    shown: str
    environment: str
    program: list[str]


BARE = System("bare torch loop", OWN, ["on_bare_torch.py", "--rounds=300"])
SYSTEMS = {
    "bare": BARE,
    "exact": System("p2p-tally, exact", OWN, ["on_p2p_tally.py", "exact", "--rounds=200", "--eval-every=20"]),
    "stacked": System("p2p-tally, stacked", OWN, ["on_p2p_tally.py", "stacked", "--rounds=2000", "--eval-every=200"]),
    "launch": System("p2p-tally, launch", OWN, ["on_p2p_tally.py", "launch", "--rounds=100", "--eval-every=10"]),
    "flower-simulator": System("Flower, simulator", "flower", ["on_flower.py", "simulator", "--rounds=30"]),
    "flower-simulator-tuned": System(
        "Flower, simulator, tuned", "flower", ["on_flower.py", "simulator-tuned", "--rounds=30"]
    ),
    "flower-deployed": System(
        "Flower, SuperLink and 8 SuperNodes", "flower", ["on_flower.py", "deployed", "--rounds=3"]
    ),
    "p2pfl-memory": System("p2pfl, in memory", "p2pfl", ["on_p2pfl.py", "memory", "--rounds=4"]),
    "p2pfl-memory-tuned": System(
        "p2pfl, in memory, tuned", "p2pfl", ["on_p2pfl.py", "memory", "--rounds=6", "--tuned"]
    ),
    # Not tuned: with models gossiped each 0.1 s or 0.5 s over gRPC, nodes lose each other and rounds take longer.
    "p2pfl-grpc": System("p2pfl, gRPC", "p2pfl", ["on_p2pfl.py", "grpc", "--rounds=4"]),
    "bare-again": System("bare torch loop, again", BARE.environment, BARE.program),
}


def measure(system: System, data: Path, limit: float, keep: Path | None) -> tuple[Row | Failed, list[dict[str, Any]]]:
    """The row, and the marks that it was made from."""
    try:
        python = python_of(system.environment)
    except NoEnvironment as error:
        return Failed(system.shown, str(error)), []
    folder = Path(tempfile.mkdtemp(prefix="peers-"))  # short: sockets have their paths in it
    try:
        watched = watch([python, HERE / system.program[0], *system.program[1:]], data, folder, limit)
        if keep:
            shutil.copytree(folder, keep, symlinks=True, ignore=_sockets)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    row = make_row(system.shown, watched.began, watched.marks, watched.memory)
    if watched.code == 0 and isinstance(row, Row):
        return row, watched.marks
    ended = f"its time of {limit:.0f} s was over" if watched.code is None else f"it ended with code {watched.code}"
    print(f"{system.shown}: {ended}; its last lines:\n{watched.last_words}", file=sys.stderr, flush=True)
    if isinstance(row, Failed):
        return Failed(system.shown, f"{row.why}; {ended}"), watched.marks
    return replace(row, system=f"{system.shown} ({ended})"), watched.marks


def _sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if (Path(folder) / name).is_socket()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(SYSTEMS), help="may be repeated")
    parser.add_argument("--keep", type=Path, help="a new folder for the logs and marks of each system")
    arguments = parser.parse_args()
    if not namespaces_work():
        parser.error("needs Linux with unshare (util-linux) and ip (iproute2), and the right to make namespaces")
    if arguments.keep and arguments.keep.exists():
        parser.error(f"--keep {arguments.keep}: exists already; accepted is the name of a new folder")
    names = arguments.only or list(SYSTEMS)
    rows: list[Row | Failed] = []
    bare: list[dict[str, Any]] = []
    for environment in {SYSTEMS[name].environment for name in names}:
        try:
            python_of(environment)
        except NoEnvironment as error:
            print(f"{environment}: {error}", file=sys.stderr, flush=True)
    load, began = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "digits.npz"
        write_data(data)
        for name in names:
            for turn in (1, 2):  # a system that fails may try once more: Ray does not always start
                left = 60 * MINUTES - (time.monotonic() - began)
                keep = arguments.keep and arguments.keep / f"{name}-{turn}"
                row, marks = measure(SYSTEMS[name], data, min(LIMIT, left), keep)
                if isinstance(row, Row):
                    break
            rows.append(row)
            bare = marks if name == "bare" else bare
            print(f"{name}: {row}", file=sys.stderr, flush=True)
    print(table(rows, bare))
    print(
        f"\n{os.cpu_count()} cores; load average of the minute before: {load:.1f}; of the last 15 minutes, this bench "
        f"included: {os.getloadavg()[2]:.1f}; {time.monotonic() - began:.0f} s in all"
    )


if __name__ == "__main__":
    main()
