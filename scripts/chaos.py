"""Seeded schedules of faults against real daemons: what must hold holds after each of them.

    python scripts/chaos.py --seed 0 --count 1000 [--resume] [--out runs/chaos.jsonl]
    python scripts/chaos.py --seed 0 --only 17 --log          # one schedule again, with what its nodes say

A schedule is a federation (method, graph, merges, links plain or by keys) and faults at rounds of it: `faults/plan.py`
makes it from the seed and its number. Most run their daemons in one process, over real sockets and through a proxy;
kill -9, SIGSTOP and full disks have a process for each node. After each: nobody hangs, all finish, no model is a mix
of two merges, all that merged last have the same model, all bytes are in the ledgers, and no log has a fault of the
program.

Each schedule is a line of JSON in --out; with --resume those that are there are not run again. A campaign fails if a
schedule does, or if a kind of fault has happened in fewer than --least of them.
"""

import argparse
import json
import logging
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from faults.inside import run_inside
from faults.outside import run_outside
from faults.plan import KINDS, Schedule, make_schedule

LEAST = 20


def play(schedule: Schedule) -> dict[str, Any]:
    """Run one schedule. Returns its line."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    started = time.monotonic()
    try:
        wrong, fired = (run_outside if schedule.processes else run_inside)(schedule, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "seed": schedule.seed,
        "number": schedule.number,
        "processes": schedule.processes,
        "secure": schedule.secure,
        "options": schedule.options,
        "faults": [str(fault) for fault in schedule.faults],
        "planned": sorted({fault.kind for fault in schedule.faults}),
        "fired": dict(fired),
        "wrong": wrong,
        "seconds": round(time.monotonic() - started, 2),
    }


def play_all(schedules: list[Schedule], jobs: int) -> Iterator[dict[str, Any]]:
    """Their lines as they are done. With several jobs each has processes of its own: schedules mostly wait."""
    if jobs == 1:
        yield from map(play, schedules)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _be_quiet) as pool:
        for done in as_completed([pool.submit(play, schedule) for schedule in schedules]):
            yield done.result()


def _be_quiet() -> None:
    """Warnings of daemons are judged, and not shown."""
    logging.lastResort = None


def summary(lines: list[dict[str, Any]], least: int) -> tuple[str, bool]:
    """A table by kind of fault, and whether all is as wanted."""
    planned, happened, bad = Counter[str](), Counter[str](), Counter[str]()
    for line in lines:
        kinds = [kind for kind, times in line["fired"].items() if times]
        planned.update({*line["planned"], *kinds})
        happened.update(kinds)
        if line["wrong"]:
            bad.update(kinds)
    rows = ["| fault | schedules | in which it happened | not as wanted |", "| --- | ---: | ---: | ---: |"]
    rows += [f"| {kind} | {planned[kind]} | {happened[kind]} | {bad[kind]} |" for kind in KINDS]
    failed = [line for line in lines if line["wrong"]]
    rare = [kind for kind in KINDS if happened[kind] < least]
    processes = sum(line["processes"] for line in lines)
    rows += [
        "",
        f"{len(lines)} schedules ({processes} with a process for each node, "
        f"{sum(line['secure'] for line in lines)} with links by keys): {len(failed)} not as wanted",
    ]
    rows += [f"  {line['number']}: {line['wrong'][0]:.200}" for line in failed]
    rows += [f"too rare, {least} wanted: {', '.join(rare)}"] if rare else []
    return "\n".join(rows), not failed and not rare


def read_lines(path: Path, seed: int) -> dict[int, dict[str, Any]]:
    """The schedules that are done, by number. A last line that was cut off does not count."""
    done = {}
    for text in path.read_text().splitlines() if path.exists() else []:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if line["seed"] == seed:
            done[line["number"]] = line
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the number of the first schedule")
    parser.add_argument("--only", type=int, help="this schedule, and no other")
    parser.add_argument("--out", type=Path, default=Path("runs/chaos.jsonl"))
    parser.add_argument("--jobs", type=int, default=1, help="schedules at a time")
    parser.add_argument("--resume", action="store_true", help="go on with the campaign in --out")
    parser.add_argument("--least", type=int, default=LEAST, help="in how many schedules each kind must happen")
    parser.add_argument("--log", action="store_true", help="what the daemons of this process say")
    arguments = parser.parse_args()
    if not arguments.log:
        _be_quiet()
    else:
        logging.basicConfig(level=logging.INFO)
    if arguments.only is not None:
        line = play(make_schedule(arguments.seed, arguments.only))
        print(json.dumps(line, indent=1))
        sys.exit(1 if line["wrong"] else 0)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    if not arguments.resume:
        arguments.out.unlink(missing_ok=True)
    done = read_lines(arguments.out, arguments.seed)
    numbers = range(arguments.first, arguments.first + arguments.count)
    schedules = [make_schedule(arguments.seed, number) for number in numbers if number not in done]
    with arguments.out.open("a") as file:
        for line in play_all(schedules, arguments.jobs):
            done[line["number"]] = line
            file.write(json.dumps(line) + "\n")
            file.flush()
            for wrong in line["wrong"]:
                print(f"{line['number']}: {wrong:.300}", flush=True)
    text, good = summary([done[number] for number in numbers], arguments.least)
    print(text)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
