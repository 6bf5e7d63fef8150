"""Inputs that are almost right, by the million, for everything that reads bytes of others.

Wanted, for each input: it is read, or refused with one of the declared errors; at most 50 ms of processor time; memory
of at most 4 times the input, and a constant of 1 MiB. Inputs are made in chunks from a seed, the target's name and the
chunk's number, so that any of them can be made again. Counts are kept in a file: the next run goes on where this ends.

    python scripts/fuzz.py --inputs 50000000 [--state runs/fuzz.json] [--jobs 1] [--targets frames,hello]
    python scripts/fuzz.py --guided 200000          # so many inputs for each target, led by coverage: needs atheris
    python scripts/fuzz.py --replay frames:17       # one chunk again

Prints a table by target. Exit code 1 if an input was not as wanted; the inputs are in the file.
"""

import argparse
import gc
import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from fuzzing.inbox import inbox_targets
from fuzzing.targets import Target, all_targets

CHUNK = 20_000
MOST_SECONDS = 0.050
MOST_TIMES, CONSTANT = 4, 1 << 20
WEIGHED = 200  # of so many inputs one is read again with its memory measured
KEPT = 20  # bad inputs that are kept for each target


@dataclass
class Count:
    """What came of the inputs of one target."""

    inputs: int = 0
    read: int = 0  # not refused
    slowest: float = 0.0  # seconds of processor time
    largest: float = 0.0  # memory beyond 4 times the input, as a share of the constant
    bad: list[dict[str, Any]] = field(default_factory=list)

    def take(self, other: "Count") -> None:
        self.inputs += other.inputs
        self.read += other.read
        self.slowest = max(self.slowest, other.slowest)
        self.largest = max(self.largest, other.largest)
        self.bad = (self.bad + other.bad)[:KEPT]


def targets() -> dict[str, Target]:
    return {target.name: target for target in (*all_targets(), *inbox_targets())}


def inputs(target: Target, seed: int, chunk: int, count: int) -> Iterator[bytes]:
    """Every fourth is made from a valid one; the three after it differ from it in one byte, which costs little."""
    rng = random.Random(f"{seed}/{target.name}/{chunk}")
    data = b""
    for number in range(count):
        if number % 4 == 0:
            data = target.change(rng, target.seeds)
            yield data
        else:
            other = bytearray(data)
            if other:
                other[int(rng.random() * len(other))] = int(rng.random() * 256)
            yield bytes(other)


def read_chunk(target: Target, seed: int, chunk: int, count: int = CHUNK) -> Count:
    """Read so many inputs."""
    found, clock, bad = Count(), time.thread_time, []
    for number, data in enumerate(inputs(target, seed, chunk, count)):
        started, wrong = clock(), ""
        try:
            target.read(data)
            found.read += 1
        except target.declared:
            pass
        except Exception as error:
            wrong = f"{type(error).__name__}: {error!s:.200}"
        took = clock() - started
        if took > MOST_SECONDS:
            took = min(took, *(_seconds(target, data) for _ in range(3)))  # a collection of garbage may have come in
            wrong = wrong or (f"{took:.3f} s" if took > MOST_SECONDS else "")
        found.slowest = max(found.slowest, took)
        if number % WEIGHED == 0:
            share = _memory(target, data)
            found.largest = max(found.largest, share)
            wrong = wrong or (f"memory: {share:.1f} of the constant" if share > 1 else "")
        if wrong:
            bad.append({"chunk": chunk, "number": number, "wrong": wrong, "input": data[:4096].hex()})
    found.inputs, found.bad = count, bad[:KEPT]
    return found


def _quietly(target: Target, data: bytes) -> None:
    try:
        target.read(data)
    except Exception:  # counted when it was first read
        return


def _seconds(target: Target, data: bytes) -> float:
    gc.collect()
    started = time.thread_time()
    _quietly(target, data)
    return time.thread_time() - started


def _memory(target: Target, data: bytes) -> float:
    """What reading needs beyond 4 times the input, as a share of the constant."""
    tracemalloc.start()
    try:
        _quietly(target, data)
        return (tracemalloc.get_traced_memory()[1] - MOST_TIMES * len(data)) / CONSTANT
    finally:
        tracemalloc.stop()


# --- a campaign


class State:
    """Counts by target, in a file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        kept = json.loads(path.read_text()) if path is not None and path.exists() else {}
        self.counts = {name: Count(**values) for name, values in kept.get("counts", {}).items()}
        self.chunks: dict[str, int] = kept.get("chunks", {})  # the next of each target
        self.guided: dict[str, int] = kept.get("guided", {})  # inputs led by coverage

    def add(self, name: str, count: Count) -> None:
        self.counts.setdefault(name, Count()).take(count)
        self.save()

    def next_chunk(self, name: str) -> int:
        self.chunks[name] = self.chunks.get(name, 0) + 1
        return self.chunks[name] - 1

    def save(self) -> None:
        if self._path is None:
            return
        values = {
            "counts": {name: asdict(count) for name, count in self.counts.items()},
            "chunks": self.chunks,
            "guided": self.guided,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(values, indent=1))
        part.replace(self._path)

    @property
    def total(self) -> int:
        return sum(count.inputs for count in self.counts.values()) + sum(self.guided.values())


def plan(state: State, chosen: list[Target], wanted: int) -> Iterator[tuple[str, int]]:
    """Chunks until there have been so many inputs in all: of who is furthest behind its share, the next."""
    planned = {target.name: state.counts.get(target.name, Count()).inputs for target in chosen}
    left = wanted - state.total
    while left > 0:
        name = min(chosen, key=lambda target: planned[target.name] / target.weight).name
        planned[name] += CHUNK
        left -= CHUNK
        yield name, state.next_chunk(name)


_TARGETS: dict[str, Target] = {}


def _work(job: tuple[str, int, int]) -> tuple[str, Count]:
    if not _TARGETS:
        _TARGETS.update(targets())
    name, seed, chunk = job
    return name, read_chunk(_TARGETS[name], seed, chunk)


def table(state: State) -> str:
    rows = ["| target | inputs | read | slowest ms | memory | led by coverage | not as wanted |"]
    rows.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, count in sorted(state.counts.items()):
        share = f"{max(0.0, count.largest):.2f}"
        rows.append(
            f"| `{name}` | {count.inputs:,} | {count.read:,} | {1e3 * count.slowest:.1f} | {share} | "
            f"{state.guided.get(name, 0):,} | {len(count.bad)} |"
        )
    return "\n".join(rows)


def run(state: State, chosen: list[Target], arguments: argparse.Namespace) -> None:
    jobs = ((name, arguments.seed, chunk) for name, chunk in plan(state, chosen, arguments.inputs))
    if arguments.jobs == 1:
        for job in jobs:
            state.add(*_work(job))
        return
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool:
        for name, count in pool.imap_unordered(_work, jobs):
            state.add(name, count)


# --- led by coverage


def guided(state: State, chosen: list[Target], arguments: argparse.Namespace) -> None:
    """A process for each target: atheris ends the process that it fuzzes in."""
    for target in chosen:
        left = arguments.guided - state.guided.get(target.name, 0)
        if left <= 0 or target.name.startswith("inbox"):
            continue
        command = [sys.executable, __file__, "--guide", target.name, str(left), f"--seed={arguments.seed}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr[-3000:])
            lines = [line for line in done.stderr.splitlines() if "Error" in line or "Exception" in line]
            state.add(target.name, Count(bad=[{"guided": True, "wrong": lines[-1] if lines else "ended"}]))
        state.guided[target.name] = state.guided.get(target.name, 0) + left
        state.save()
        print(f"{target.name}: {left:,} led by coverage{'' if not done.returncode else ': NOT AS WANTED'}", flush=True)


def guide(name: str, runs: int, seed: int) -> None:
    import atheris  # noqa: PLC0415 - need not be installed

    with atheris.instrument_imports(include=["p2p_tally.protocol", "p2p_tally.trust", "p2p_tally.page"]):
        for module in [module for module in sys.modules if module.startswith(("p2p_tally", "fuzzing"))]:
            del sys.modules[module]
        from fuzzing.targets import all_targets as instrumented  # noqa: PLC0415

        target = next(target for target in instrumented() if target.name == name)

    def one(data: bytes) -> None:
        try:
            target.read(data)
        except target.declared:
            return

    def mutate(data: bytes, most: int, number: int) -> bytes:
        if number % 2:  # not only ours: atheris uses what it has learned of comparisons
            return bytes(atheris.Mutate(data, most))
        seeds = target.seeds if target.change.__name__ != "change_bytes" else [bytes(data), *target.seeds]
        return target.change(random.Random(number), seeds)[:most]

    corpus = Path(os.environ.get("TMPDIR", "/tmp")) / f"fuzz-{os.getpid()}"
    corpus.mkdir()
    for number, data in enumerate(target.seeds):
        (corpus / str(number)).write_bytes(data)
    options = [f"-runs={runs}", f"-seed={seed + 1}", "-max_len=300000", "-timeout=10", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], str(corpus), *options], one, custom_mutator=mutate)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=0, help="in all, over all targets and runs")
    parser.add_argument("--guided", type=int, default=0, help="for each target, over all runs")
    parser.add_argument("--state", type=Path, default=Path("runs/fuzz.json"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", default="")
    parser.add_argument("--replay", metavar="TARGET:CHUNK")
    parser.add_argument("--guide", nargs=2, metavar=("TARGET", "RUNS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.guide:
        guide(arguments.guide[0], int(arguments.guide[1]), arguments.seed)
    known = targets()
    if arguments.replay:
        name, _, chunk = arguments.replay.partition(":")
        found = read_chunk(known[name], arguments.seed, int(chunk))
        print(json.dumps(asdict(found), indent=1))
        sys.exit(1 if found.bad else 0)
    names = arguments.targets.split(",") if arguments.targets else list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"--targets {arguments.targets}: accepted are {', '.join(known)}")
    state = State(arguments.state)
    guided(state, [known[name] for name in names], arguments)
    run(state, [known[name] for name in names], arguments)
    print(table(state))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    bad = sum(len(count.bad) for count in state.counts.values())
    print(f"{state.total:,} inputs ({sum(state.guided.values()):,} led by coverage); {bad} not as wanted; {used:.0f} s")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
