"""The settings of the bench of all methods at equal bytes: what each method does with a budget, worked out.

    python scripts/field_settings.py search field runs/field-search.toml    # an experiment: three step sizes a method
    p2p-tally sweep runs/field-search.toml --seeds 100 --out runs/field-search
    python scripts/field_settings.py choose field runs/field-search         # the best, into field_rates.json
    python scripts/field_settings.py write                                  # the cells of both presets

The same with `field-features`. A method has one knob. Its setting is the one that sends most within the budget, by the
byte formulas; where that is less than a third of the budget, the method cannot use it, and there is no such cell.
To add a method is one row of ENTRIES.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p2p_tally.config import Federation
from p2p_tally.runner.experiments.experiment import PRESETS, ByteFacts, Cell, load_experiment
from p2p_tally.runner.experiments.payload import cell_bytes
from p2p_tally.runner.report.results import collect

Options = dict[str, Any]
# (the options of a cell, the task) -> ladders of settings; each from the fewest bytes to the most.
Knob = Callable[[Options, "Setup"], list[Sequence[Options]]]

RATES = Path(__file__).with_name("field_rates.json")
BUDGETS = {"100kB": 100_000, "1MB": 1_000_000, "10MB": 10_000_000}
SKEWS = {"d01": "dirichlet:0.1", "d05": "dirichlet:0.5"}
GRAPHS: dict[str, Options] = {
    "mesh": {"nodes": 10, "topology": "mesh"},
    "gossip": {"nodes": 32, "topology": "gossip", "degree": 4},
}
TRIED = (0.001, 0.003, 0.01)  # step sizes of the search
SEARCHED = ("mesh", "d05", "1MB")
LEAST_ROUNDS = 10  # an exchange in fewer rounds than these is none


@dataclass(frozen=True)
class Setup:
    """What all cells of a preset share."""

    preset: str
    facts: Options
    base: Options
    most_probes: int  # in a round


SETUPS = {
    "field": Setup(
        "field",
        {"classes": 10, "parameters": 4_810, "features": 64, "layout": [[64, 64], [64], [10, 64], [10]]},
        {"data": "digits", "model": "mlp", "probe_count": 300, "batch": 16, "eval_every": 7, "tail": 42},
        most_probes=256,
    ),
    "field-features": Setup(
        "field-features",
        {"classes": 10, "parameters": 34_186, "features": 128, "layout": [[128, 256], [128], [10, 128], [10]]},
        {
            "data": "features:cifar10", "model": "mlp:128", "probe_count": 2000, "batch": 32, "eval_every": 13,
            "tail": 52, "test_count": 2000,
        },
        most_probes=512,
    ),
}  # fmt: skip
BASE: Options = {"rounds": 150, "local_steps": 5, "probe_labels": "hidden", "robust_merge": "off"}


# --- knobs


def probes(given: Options, setup: Setup) -> list[Sequence[Options]]:
    """How many probes are answered in a round; on a sparse graph also how far answers travel."""
    counts = range(1, setup.most_probes + 1)
    ladder = [{"probes_per_round": count, "merge_every": 0} for count in counts]
    further = [{**step, "hops": 2} for step in ladder]
    return [ladder] if given["topology"] == "mesh" else [ladder, further]


def merges(given: Options, setup: Setup) -> list[Sequence[Options]]:  # noqa: ARG001
    """How many rounds lie between merges."""
    return [[{"merge_every": every} for every in range(BASE["rounds"], 0, -1)]]


def open_rounds(given: Options, setup: Setup) -> list[Sequence[Options]]:  # noqa: ARG001
    """In how many of the last rounds something is exchanged: what travels has one size."""
    rounds = BASE["rounds"]
    return [[{"warmup": rounds - last, "merge_every": 0} for last in range(LEAST_ROUNDS, rounds - rounds // 10 + 1)]]


def nothing(given: Options, setup: Setup) -> list[Sequence[Options]]:  # noqa: ARG001
    return [[{}]]


# --- the methods


@dataclass(frozen=True)
class Entry:
    """A method of the bench: its name there, its options, its knob, and what it asks of a federation."""

    name: str
    options: Options
    knob: Knob
    power_of_two: bool = False  # of the number of nodes
    own_graph: bool = False  # its graph is an option of its own, so GRAPHS says only how many nodes there are


def _soft(name: str, **options: Any) -> Entry:
    return Entry(name, {"method": name, **options}, probes)


def _merging(name: str, **options: Any) -> Entry:
    return Entry(name, {"method": name, **options}, merges)


ENTRIES = [
    Entry("tally", {"method": "tally"}, probes),
    Entry("tally-skewed", {"method": "tally", "recipe": "skewed"}, probes),
    Entry("tally+merges", {"method": "tally", "probes_per_round": 16}, merges),
    Entry("tally+int8", {"method": "tally", "probes_per_round": 16, "merge_precision": "int8"}, merges),
    Entry(
        "tally-skewed+int8",
        {"method": "tally", "recipe": "skewed", "probes_per_round": 16, "merge_precision": "int8"},
        merges,
    ),
    Entry("fedct", {"method": "fedct"}, probes),
    _soft("fedmd"),
    Entry("fedmd-int8", {"method": "fedmd", "soft_precision": "int8"}, probes),
    _soft("rcfd", top_k=3),
    _soft("dsfl"),
    _soft("idkd"),
    _soft("cronus"),
    Entry("fd", {"method": "fd", "probes_per_round": 16}, open_rounds),
    Entry("fedproto", {"method": "fedproto", "probes_per_round": 16}, open_rounds),
    _merging("feddf", probes_per_round=16),
    _merging("fedavg"),
    Entry("fedavg-int8", {"method": "fedavg", "merge_precision": "int8"}, merges),
    _merging("fedprox"),
    _merging("diloco"),
    _merging("gflat"),
    _merging("dspodfl"),
    _merging("pame"),
    _merging("spod-gt"),
    _merging("dpfl"),
    _merging("dfml"),
    _merging("fedkd"),
    _merging("fedspd"),
    Entry("epidemic", {"method": "fedavg", "topology": "gossip-k:1", "degree": 4}, merges, own_graph=True),
    Entry(
        "one-peer", {"method": "fedavg", "topology": "one-peer-exponential"}, merges, power_of_two=True, own_graph=True
    ),
]

# Cells beside the grid: the reference that sends nothing; two members in ten that lie; labels that are known.
LIARS = {"attack": "flip:2"}
KNOWN = {"probe_labels": "known"}


# --- cells


def entry(name: str) -> Entry:
    return next(one for one in ENTRIES if one.name == name)


def federation_options(one: Entry, graph: str, skew: str) -> Options:
    given = {**GRAPHS[graph], "partition": SKEWS[skew]}
    if one.own_graph:
        given.pop("degree", None)
    return {**given, **one.options}


def sent(setup: Setup, options: Options) -> float:
    """Bytes that a peer sends in the whole run."""
    federation = Federation.parse({**BASE, **setup.base, **options})
    return cell_bytes(Cell("", federation, ByteFacts(**setup.facts), "mesh")).sent_bytes


def fitted(setup: Setup, one: Entry, graph: str, skew: str, budget: int) -> Options | None:
    """The options of the cell that sends most within the budget; None where that is less than a third of it."""
    given = federation_options(one, graph, skew)
    if one.power_of_two and given["nodes"] & (given["nodes"] - 1):
        return None
    for ladder in one.knob(given, setup):
        low, high = 0, len(ladder)  # below `low` all fit, from `high` on none does
        while low < high:
            middle = (low + high) // 2
            if sent(setup, {**given, **ladder[middle]}) <= budget:
                low = middle + 1
            else:
                high = middle
        if low and sent(setup, {**given, **ladder[low - 1]}) >= budget / 3:
            return {**given, **ladder[low - 1]}
    return None


def cells(setup: Setup, rates: dict[str, float]) -> Iterator[Options]:
    """All cells of a preset, the mesh first."""
    for graph in GRAPHS:
        for skew in SKEWS:
            where = f"{graph}-{skew}"
            yield {"name": f"{where}-local", **federation_options(Entry("", {"method": "local"}, nothing), graph, skew),
                   **_rate(rates, "local")}  # fmt: skip
            for one in ENTRIES:
                for budget, most in BUDGETS.items():
                    found = fitted(setup, one, graph, skew, most)
                    if found is not None:
                        yield {"name": f"{where}-{one.name}-{budget}", **found, **_rate(rates, one.name)}
    yield from _beside(setup, rates)


def _beside(setup: Setup, rates: dict[str, float]) -> Iterator[Options]:
    graph = "mesh"
    for name in ("fedmd", "cronus"):
        found = fitted(setup, entry(name), graph, "d05", BUDGETS["1MB"])
        assert found is not None
        yield {"name": f"{graph}-d05-{name}-1MB-liars", **found, **LIARS, **_rate(rates, name)}
    for skew in SKEWS:
        alone = federation_options(Entry("", {"method": "no-consensus"}, nothing), graph, skew)
        yield {"name": f"{graph}-{skew}-labels", **alone, **KNOWN, **_rate(rates, "tally")}
        for name, budget in (("tally", "100kB"), ("fedmd", "1MB")):
            found = fitted(setup, entry(name), graph, skew, BUDGETS[budget])
            assert found is not None
            yield {"name": f"{graph}-{skew}-{name}-{budget}-labels", **found, **KNOWN, **_rate(rates, name)}


def _rate(rates: dict[str, float], name: str) -> Options:
    return {"lr": rates[name]} if name in rates else {}


# --- step sizes


def search(setup: Setup) -> str:
    """An experiment file: each method with each step size, at the middle budget or the largest below it that it can
    use."""
    graph, skew, middle = SEARCHED
    tried: list[Options] = []
    for one in [Entry("local", {"method": "local"}, nothing), *ENTRIES]:
        found = _searched(setup, one, graph, skew, middle)
        tried += [{"name": f"{one.name}-lr{rate}", **found, "lr": rate} for rate in TRIED]
    head = f'title = "Step sizes for {setup.preset}"\naccounting = "mesh"\nengine = "stacked"\n'
    return f"{head}{written(tried)}\n{_table('facts', setup.facts)}\n{_table('base', {**BASE, **setup.base})}"


def _searched(setup: Setup, one: Entry, graph: str, skew: str, budget: str) -> Options:
    if one.name == "local":
        return federation_options(one, graph, skew)
    names = list(BUDGETS)
    order = [*reversed(names[: names.index(budget) + 1]), *names[names.index(budget) + 1 :]]
    for where in (graph, *GRAPHS):  # one that needs another number of nodes is searched there
        for name in order:
            found = fitted(setup, one, where, skew, BUDGETS[name])
            if found is not None:
                return found
    raise ValueError(f"{one.name} can use no budget")


def choose(runs: Path) -> dict[str, float]:
    """For each method the step size with the highest tail accuracy."""
    (results,) = collect([runs])
    best: dict[str, tuple[float, float]] = {}
    for cell in results.cells:
        name, _, rate = cell.name.rpartition("-lr")
        tail = cell.metric("tail")
        assert tail is not None
        best[name] = max(best.get(name, (0.0, 0.0)), (tail.mean, float(rate)))
    return {name: rate for name, (_, rate) in best.items()}


# --- files


def written(rows: Sequence[Options]) -> str:
    """One line for each cell."""
    lines = [f"    {{ {', '.join(f'{key} = {json.dumps(value)}' for key, value in row.items())} }},\n" for row in rows]
    return f"cells = [\n{''.join(lines)}]\n"


def _table(name: str, values: Options) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def known_rates() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(RATES.read_text(encoding="utf-8")) if RATES.is_file() else {}
    return found


def rewritten(setup: Setup, text: str, rates: dict[str, float]) -> str:
    """The preset's text with its cells, facts and base anew. What a person wrote, before and after them, stays."""
    tables = f"{written(list(cells(setup, rates)))}\n{_table('facts', setup.facts)}\n"
    tables += _table("base", {**BASE, **setup.base})
    return re.sub(r"(?<=# begin\n).*(?=# end\n)", lambda _: tables, text, flags=re.DOTALL)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["search", name, path]:
            Path(path).write_text(search(SETUPS[name]), encoding="utf-8")
        case ["choose", name, runs]:
            rates = known_rates()
            rates[name] = {**rates.get(name, {}), **choose(Path(runs))}
            RATES.write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")
        case ["write"]:
            for name, setup in SETUPS.items():
                path = PRESETS / f"{name}.toml"
                path.write_text(
                    rewritten(setup, path.read_text(encoding="utf-8"), known_rates().get(name, {})), encoding="utf-8"
                )
                print(f"{name}: {len(load_experiment(name).cells)} cells")
        case _:
            sys.exit(str(__doc__))


if __name__ == "__main__":
    main(sys.argv[1:])
