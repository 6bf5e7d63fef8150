"""Schedules: which federation is run, and which faults happen to it when. Pure: a schedule follows from a seed and a
number, and nothing here runs anything.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# Faults that need no process of their own, and those that do.
NETWORK = ("cut", "one-way", "delay", "slow", "duplicate", "reorder", "corrupt")
INSIDE = (*NETWORK, "restart", "clock")
OUTSIDE = ("kill", "stop", "full-disk")
KINDS = (*INSIDE, *OUTSIDE)

# One schedule of so many has processes.
PROCESSES_EVERY = 20

DEADLINE = 0.8  # seconds
LONGEST = 2.0  # deadlines that a fault lasts

# What nodes do, beside faults: methods, graphs and merges. Each ends with a round in which all merge.
FEDERATIONS: Sequence[dict[str, Any]] = (
    {"method": "tally"},
    {"method": "tally", "ballot": "packed"},
    {"method": "tally", "ballot": "coded"},
    {"method": "tally", "topology": "ring"},
    {"method": "tally", "topology": "ring", "hops": "all"},
    {"method": "tally", "topology": "ring", "merge_over": "ring"},
    {"method": "tally", "merge_precision": "int8"},
    {"method": "tally", "merge_precision": "bfloat16", "merge_top_k": 0.1},
    {"method": "fedavg"},
    {"method": "fedavg", "merge_every": 1, "warmup": 0},
    {"method": "fedavg", "topology": "ring", "merge_over": "ring"},
    {"method": "fedprox"},
    {"method": "fedavg", "robust_merge": "trim:1"},
    {"method": "tally", "robust_merge": "median"},
    {"method": "tally", "robust_merge": "clip", "topology": "ring"},
    {"method": "fedavg", "robust_merge": "off", "nodes": 5},
    {"method": "fedmd"},
    {"method": "fedmd", "soft_precision": "int8"},
    {"method": "diloco"},
    {"method": "tally", "warmup": "auto", "labels": "shown"},
)


@dataclass(frozen=True)
class Fault:
    """What happens when a node has come to a round, to whom, how much of it, and for how long."""

    kind: str
    round: int
    node: str
    other: str  # of a link: its other end
    amount: float  # of the kind's own: seconds of delay, bytes a second, frames, hours
    seconds: float

    def __str__(self) -> str:
        towards = f"-{self.other}" if self.kind in NETWORK else ""
        return f"{self.kind} {self.node}{towards} at round {self.round} ({self.amount:.3g}, {self.seconds:.2f} s)"


@dataclass(frozen=True)
class Schedule:
    seed: int
    number: int
    processes: bool
    secure: bool  # links by keys
    options: dict[str, Any]  # of the federation
    faults: list[Fault] = field(default_factory=list)
    waits: bool = False  # all wait for one that was killed; otherwise a majority goes on

    @property
    def framed(self) -> bool:
        return not self.secure


def make_schedule(seed: int, number: int) -> Schedule:
    rng = random.Random(f"chaos/{seed}/{number}")
    processes = number % PROCESSES_EVERY == PROCESSES_EVERY - 1
    secure = not processes and rng.random() < 0.25
    options = {"nodes": rng.choice((3, 3, 4, 5)), "merge_every": rng.choice((2, 3, 4)), "warmup": rng.choice((0, 2))}
    options |= {"local_steps": 1, "batch": 8, "seed": rng.randrange(100)}
    options |= rng.choice(FEDERATIONS)
    if options.get("topology") == "ring":
        options["nodes"] = max(4, options["nodes"])
    turns = rng.choice((40, 60)) if processes else rng.choice((4, 6))
    options["rounds"] = options["merge_every"] * max(2, turns // options["merge_every"] * (1 if processes else 3))
    options["eval_every"] = 1 if processes else options["rounds"]
    options.pop("labels", None)
    faults = _faults(rng, processes, secure, options)
    return Schedule(seed, number, processes, secure, options, faults, processes and rng.random() < 0.6)


def _faults(rng: random.Random, processes: bool, secure: bool, options: dict[str, Any]) -> list[Fault]:
    kinds = [rng.choice(_inside(secure)) for _ in range(rng.choice((1, 1, 2, 3)))]
    if processes:
        kinds = [*rng.sample(OUTSIDE, rng.choice((2, 3))), *(kind for kind in kinds if kind in NETWORK)]
    return sorted((_fault(rng, kind, options) for kind in kinds), key=lambda fault: fault.round)


def _inside(secure: bool) -> Sequence[str]:
    """What can happen: frames that cannot be read cannot be repeated."""
    return [kind for kind in INSIDE if not (secure and kind in ("duplicate", "reorder"))]


def _fault(rng: random.Random, kind: str, options: dict[str, Any]) -> Fault:
    names = [f"node-{rank}" for rank in range(options["nodes"])]
    node = rng.choice(names)
    ring = options.get("topology") == "ring"
    rank = names.index(node)
    near = [names[rank - 1], names[(rank + 1) % len(names)]] if ring else [name for name in names if name != node]
    amounts = {
        "delay": rng.uniform(0.005, 0.15),
        "slow": rng.choice((5e3, 2e4, 1e5)),
        "duplicate": rng.randint(1, 30),
        "reorder": rng.randint(1, 20),
        "corrupt": rng.choice((-1, 1)) * rng.randint(1, 3),  # below zero: of frames, otherwise of the stream
        "clock": rng.choice((-1, 1)) * rng.choice((1, 24, 24 * 366)),
    }
    last = options["rounds"] // 2 if kind in ("clock", "restart") else options["rounds"] - 1
    return Fault(
        kind, rng.randint(1, max(1, last)), node, rng.choice(near), amounts.get(kind, 1.0),
        rng.uniform(0.05, LONGEST * DEADLINE),
    )  # fmt: skip
