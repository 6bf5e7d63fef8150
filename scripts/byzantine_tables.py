"""The tables of docs/byzantine.md, from sweeps of byzantine and the other presets whose names begin like that.

    python scripts/byzantine_tables.py runs/byzantine*

Honest tail accuracy by attack and rule, and what it is below that of the same cell without liars and without a rule.
"""

import sys
from pathlib import Path

from p2p_tally.runner.report.results import CellResults, Results, collect

# Endings of the cells' names, the honest cell that each is compared with, and the heading of the column.
COLUMNS = {
    "votes": (
        ("-plain-labels", "honest-plain-labels", "labels: no rule, as by default"),
        ("-exam-labels", "honest-plain-labels", "exam"),
        ("-reliability-labels", "honest-plain-labels", "reliability"),
        ("-default-hidden", "honest-plain-hidden", "no labels: default"),
        ("-plain-hidden", "honest-plain-hidden", "no rule"),
        ("-exam-hidden", "honest-plain-hidden", "exam"),
        ("-reliability-hidden", "honest-plain-hidden", "reliability"),
    ),
    "parameters": (("-off", "honest-off", "plain mean"), ("-auto", "honest-off", "default rule")),
    "messages": (("-labels", "honest-labels", "labels"), ("-hidden", "honest-hidden", "no labels")),
    "soft labels": (
        ("-fedmd-plain", "honest-fedmd-plain", "plain mean"),
        ("-fedmd-trim", "honest-fedmd-plain", "trim:2"),
    ),
}


def tail(cells: dict[str, CellResults], name: str) -> float | None:
    found = cells[name].metric("tail") if name in cells else None
    return None if found is None else found.mean


def shown(cells: dict[str, CellResults], name: str, honest: str) -> str:
    own, base = tail(cells, name), tail(cells, honest) or tail(cells, honest.replace("-off", "-auto"))
    if own is None:
        return ""
    return f"{own:.1f}" if base is None or name == honest else f"{own:.1f} ({own - base:+.1f})"


def table(about: str, results: Results) -> None:
    cells = {cell.name: cell for cell in results.cells}
    present = [one for one in COLUMNS[about] if any(name.endswith(one[0]) for name in cells)]
    attacks: list[str] = []
    for ending, _, _ in present:
        attacks += [name.removesuffix(ending) for name in cells if name.endswith(ending)]
    if not present:
        return
    counts = [len(cells[attack + one[0]].runs) for attack in attacks for one in present if attack + one[0] in cells]
    seeds, least = max(counts), min(counts)
    print(f"{results.title}: {about}; seeds: {least if least == seeds else f'{least} to {seeds}'}\n")
    print("| attack | " + " | ".join(heading for _, _, heading in present) + " |")
    print("| --- | " + " | ".join("---:" for _ in present) + " |")
    for attack in dict.fromkeys(attacks):
        values = [shown(cells, attack + ending, honest) for ending, honest, _ in present]
        print(f"| {attack} | " + " | ".join(values) + " |")
    print()


for results in collect([Path(folder) for folder in sys.argv[1:]]):
    by_messages = any("withhold" in cell.name for cell in results.cells)
    for about in COLUMNS:
        if (about == "messages") == by_messages:
            table(about, results)
