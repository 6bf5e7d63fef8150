"""What marks say of a system, as a row; rows as a table in Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    system: str
    seconds: float  # a round
    processor: float  # processor seconds a round, of all processes
    start: float  # seconds from the command to the beginning of the first round
    memory: float  # bytes
    loopback: float  # bytes a round over the loopback device
    ledger: float | None  # bytes a round as the system counts them itself
    rounds: int
    accuracy: float | None  # per cent, after these rounds


@dataclass(frozen=True)
class Failed:
    system: str
    why: str


def make_row(system: str, began: float, marks: Sequence[Mapping[str, Any]], memory: float) -> Row | Failed:
    """Between the first mark and the last: what happens once, such as the loading of torch, counts as start."""
    if len(marks) < 2:
        return Failed(system, f"{len(marks)} rounds were completed, and 2 are needed")
    first, last = marks[0], marks[-1]
    rounds = last["round"] - first["round"]
    seconds = (last["at"] - first["at"]) / rounds
    ledger = None if last["ledger"] is None else (last["ledger"] - first["ledger"]) / rounds
    return Row(
        system,
        seconds,
        (last["processor"] - first["processor"]) / rounds,
        first["at"] - began - first["round"] * seconds,
        memory,
        (last["loopback"] - first["loopback"]) / rounds,
        ledger,
        last["round"],
        last["accuracy"],
    )


def table(rows: Sequence[Row | Failed], bare: Sequence[Mapping[str, Any]]) -> str:
    """`bare`: the marks of the bare loop, for the accuracy after as many rounds."""
    learned = {mark["round"]: mark["accuracy"] for mark in bare}
    lines = [
        "| system | a round, s | processor, s a round | start-up, s | memory, MB | loopback, kB a round "
        "| own count, kB a round | rounds | accuracy, % | of the bare loop, % |",
        "| --- " + "| ---: " * 9 + "|",
    ]
    for row in rows:
        if isinstance(row, Failed):
            lines.append(f"| {row.system} | failed: {row.why.replace('|', '/')} " + "| " * 8 + "|")
            continue
        cells = [
            row.system,
            _short(row.seconds),
            _short(row.processor),
            f"{row.start:.1f}",
            f"{row.memory / 1e6:.0f}",
            f"{row.loopback / 1e3:.0f}",
            "" if row.ledger is None else f"{row.ledger / 1e3:.0f}",
            str(row.rounds),
            "" if row.accuracy is None else f"{row.accuracy:.1f}",
            "" if learned.get(row.rounds) is None else f"{learned[row.rounds]:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"
