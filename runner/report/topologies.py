"""The part of a report that compares graphs: each cell on a sparse graph with the cell that has a mesh instead.

A figure of tail accuracy, spread and bytes over the spectral gap, a table of the differences, and sentences that are
computed from the numbers.
"""

import itertools
import logging
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from p2p_tally.config import Federation
from p2p_tally.ids import ranked_names
from p2p_tally.learning.methods import Sends, method_of
from p2p_tally.runner.report.accuracy_figure import STYLE
from p2p_tally.runner.report.document import Block, Bullets, Heading, Picture, Table, Text
from p2p_tally.runner.report.findings import parse_finding
from p2p_tally.runner.report.results import CellResults, Results
from p2p_tally.runner.report.verdicts import Judged, judge
from p2p_tally.runner.runs.run import cell_name
from p2p_tally.topologies import TopologyError, build
from p2p_tally.topologies.facts import describe

log = logging.getLogger(__name__)

# Options in which a sparse cell and the mesh it is compared with may differ.
OF_THE_GRAPH = {"topology", "degree", "hops", "tally_weights", "merge_over", "seed"}
REACH_LINES = {"1": "-", "2": "--", "all": ":"}
GRAPH_MARKERS = "osD^vPX*"
# Points of tail accuracy that a sparse graph may cost and still be called a bargain.
SMALL_LOSS = 0.5
ROWS = (("tail", "tail accuracy (%)"), ("spread", "spread between peers"), ("payload", "bytes sent by a peer"))


@dataclass
class MeshComparison:
    """A cell, and the cell of the same options on a mesh; None for a cell that is on a mesh itself."""

    cell: CellResults
    mesh: CellResults | None

    @property
    def federation(self) -> Federation:
        return self.cell.federation

    @property
    def method(self) -> str:
        name = cell_name(self.federation)
        return f"{name} around a ring" if self.federation.merge_over == "ring" else name

    @property
    def graph(self) -> str:
        return self.federation.topology + (f" of {self.federation.degree}" if self.federation.degree else "")

    @property
    def reach(self) -> str:
        """How far a vote travels, as a text; a dash where no vote is sent."""
        if method_of(self.federation).sends is Sends.NOTHING:
            return "–"
        hops = str(self.federation.hops)
        return {"1": "neighbours", "all": "everybody"}.get(hops, f"all within {hops} links")

    @property
    def column(self) -> tuple[int, str]:
        """The column of the figure that it is in: cells in one column may be compared."""
        return self.federation.nodes, self.federation.partition

    @property
    def gap(self) -> float:
        return _gap(self.federation.topology, self.federation.nodes, self.federation.degree, self.federation.seed)

    @cached_property
    def against(self) -> Judged | None:
        """The comparison of its tail accuracy with the mesh's."""
        if self.mesh is None:
            return None
        names = [self.cell.name, self.mesh.name]
        table = {"claim": "–", "paper": "–", "holds": f"'{names[0]}'.tail > '{names[1]}'.tail"}
        verdict = judge(parse_finding(table, names, "–"), {self.cell.name: self.cell, self.mesh.name: self.mesh}, {})
        return verdict.judged[0] if verdict.judged else None

    @cached_property
    def same_run(self) -> bool:
        """Whether every peer has the same accuracy as on the mesh at every evaluation: then it is the same run."""
        theirs = {run.federation.seed: run.accuracy for run in self.mesh.runs} if self.mesh else {}
        pairs = [(run.accuracy, theirs[run.federation.seed]) for run in self.cell.runs if run.federation.seed in theirs]
        return bool(pairs) and all(np.array_equal(own, other) for own, other in pairs)

    @property
    def noise(self) -> float | None:
        """The part of the difference that may be chance; None where that is not known."""
        assert self.against is not None
        return 0.0 if self.same_run else self.against.noise

    @property
    def outcome(self) -> str:
        """How its accuracy compares with the mesh's, as a text."""
        assert self.against is not None
        if self.same_run:
            return "the same"
        return {"holds": "more", "does not hold": "less"}.get(self.against.outcome, "no difference seen")

    @property
    def loses_little(self) -> bool:
        """Whether its loss against the mesh is small even if chance has favoured it."""
        against = self.against
        return against is not None and self.noise is not None and against.margin - self.noise > -SMALL_LOSS

    @property
    def share(self) -> float | None:
        """Its bytes as a share of the mesh's."""
        if self.mesh is None or not _mean(self.mesh, "payload"):
            return None
        return _mean(self.cell, "payload") / _mean(self.mesh, "payload")


def compares_graphs(results: Results) -> bool:
    return any(one.mesh is not None for one in compare_with_meshes(results))


def compare_with_meshes(results: Results) -> list[MeshComparison]:
    meshes = {_but_the_graph(cell): cell for cell in results.cells if cell.federation.topology == "mesh"}
    return [
        MeshComparison(cell, None if cell.federation.topology == "mesh" else meshes.get(_but_the_graph(cell)))
        for cell in results.cells
    ]


def graph_blocks(results: Results, stem: str) -> list[Block]:
    comparisons = compare_with_meshes(results)
    compared = [one for one in comparisons if one.against is not None]
    caption = (
        "Tail accuracy, spread and bytes against the spectral gap, a column for each number of peers (and split of the "
        "data); the mesh is at 1. Colour: the method. Line: how far a ballot goes. Marker: the graph. Accuracy and "
        "spread have an axis for each column, and are means over the seeds that all of its cells have."
    )
    return [
        Heading(3, "Sparse graphs against the mesh"),
        Bullets(list(_sentences(compared))),
        Picture(f"{stem}-gap", caption, _figure(comparisons)),
        _table(compared),
        Text(
            "The ± of a difference is made as for the findings; a difference within it is not told from none. A loss "
            f"is surely less than {SMALL_LOSS:g} points where it is so at the far end of its ±."
        ),
    ]


def _sentences(compared: Sequence[MeshComparison]) -> Iterator[str]:
    outcomes = Counter(one.outcome for one in compared)
    yield (
        f"Of {len(compared)} sparse cells {outcomes['less']} are less accurate than the mesh of the same peers and "
        f"method, {outcomes['more']} more accurate, {outcomes['the same']} are the same in every digit, and of "
        f"{outcomes['no difference seen']} the difference is within chance."
    )
    by_method = sorted(compared, key=lambda one: (one.method, one.reach))
    for (method, reach), group in itertools.groupby(by_method, key=lambda one: (one.method, one.reach)):
        cells = list(group)
        parts = []
        for graph in dict.fromkeys(one.graph for one in cells):
            here = [one for one in cells if one.graph == graph]
            if all(one.same_run for one in here):
                parts.append(f"{graph} the same in every digit")
                continue
            margins = [(one.against.margin, one.federation.nodes) for one in here if one.against]
            part = f"{graph} {statistics.fmean(margin for margin, _ in margins):+.2f} points"
            if len(margins) > 1:
                lowest, nodes = min(margins)
                part += f" on average ({lowest:+.2f} at worst, with {nodes} peers)"
            parts.append(part)
        shares = [one.share for one in cells if one.share is not None]
        sent_to = f", sent to {reach}" if reach != "–" else ""
        sent = f"; {_range(shares)} of the mesh's bytes" if shares else ""
        yield f"`{method}`{sent_to}, against the mesh: {', '.join(parts)}{sent}."
    for nodes in sorted({one.federation.nodes for one in compared}):
        here = [one for one in compared if one.federation.nodes == nodes]
        saving = sorted((one.share, one.cell.name) for one in here if one.share and one.share < 1 and one.loses_little)
        if not saving:
            yield f"{nodes} peers: no cell that sends less than its mesh surely loses less than {SMALL_LOSS:g} points."
            continue
        listed = ", ".join(f"`{name}` ({share:.2f})" for share, name in saving)
        yield f"{nodes} peers: surely less than {SMALL_LOSS:g} points lost for a share of the mesh's bytes: {listed}."


def _range(shares: Sequence[float]) -> str:
    lowest, highest = f"{min(shares):.2f}", f"{max(shares):.2f}"
    return lowest if lowest == highest else f"{lowest} to {highest}"


def _table(compared: Sequence[MeshComparison]) -> Table:
    rows = []
    for one in compared:
        assert one.against is not None
        noise = "?" if one.noise is None else f"{one.noise:.2f}"
        rows.append(
            [
                f"`{one.cell.name}`",
                one.graph,
                "–" if math.isnan(one.gap) else f"{one.gap:.4f}",
                one.reach,
                f"{one.against.left:.2f}",
                f"{one.against.margin:+.2f} ± {noise}",
                one.outcome,
                f"{_mean(one.cell, 'spread'):.2f}",
                f"{_mean(one.cell, 'payload'):,.0f}",
                "–" if one.share is None else f"{one.share:.2f}",
            ]
        )
    header = ["cell", "graph", "spectral gap", "sent to", "tail %", "less the mesh's", "accuracy", "spread"]
    return Table([*header, "bytes a peer", "of the mesh's"], rows)


def _figure(comparisons: Sequence[MeshComparison]) -> Figure:
    columns = sorted({one.column for one in comparisons})
    graphs = list(dict.fromkeys(one.graph for one in comparisons))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(7.2, 2.3 * len(columns) + 0.8), 7.0), layout="constrained")
        # Accuracy and spread have an axis a column: one column far below the others would press them flat.
        panels = figure.subplots(len(ROWS), len(columns), sharex="col", squeeze=False)
        labels: dict[str, Any] = {}
        for across, column in enumerate(columns):
            here = _on_common_seeds([one for one in comparisons if one.column == column and not math.isnan(one.gap)])
            for down, (metric, label) in enumerate(ROWS):
                axes = panels[down][across]
                axes.set_xscale("log")
                if metric == "payload":
                    axes.set_yscale("log")
                if across == 0:
                    axes.set_ylabel(label)
                for (method, reach), line in _lines(here):
                    line.sort(key=lambda one: one.gap)
                    colour = method_of(line[0].federation).colour
                    style = {"color": colour, "ls": REACH_LINES.get(reach, "-"), "lw": 1.2}
                    if line[0].federation.merge_every == 0:
                        style |= {"alpha": 0.55, "lw": 0.8}
                    if line[0].federation.merge_over == "ring":
                        style |= {"alpha": 0.55, "lw": 2.4}
                    series = f"{method}, {line[0].reach}" if line[0].reach != "–" else method
                    heights = [_mean(one.cell, metric) for one in line]
                    [drawn] = axes.plot([one.gap for one in line], heights, **style)
                    labels.setdefault(series, drawn)
                    for one, height in zip(line, heights, strict=True):
                        marker = GRAPH_MARKERS[graphs.index(one.graph) % len(GRAPH_MARKERS)]
                        axes.plot(one.gap, height, marker, color=colour, ms=4.5, mec="k", mew=0.4)
                axes.tick_params(labelsize=8)
            panels[0][across].set_title(f"{column[0]} peers\n{column[1]}", fontsize=9)
            panels[-1][across].set_xlabel("spectral gap", fontsize=9)
            _label_gaps(panels[-1][across], min((one.gap for one in here), default=1.0))
        for axes in panels[-1][1:]:
            axes.sharey(panels[-1][0])
            axes.tick_params(labelleft=False)
        for number, graph in enumerate(graphs):
            [drawn] = panels[0][0].plot([], [], GRAPH_MARKERS[number % len(GRAPH_MARKERS)], color="w", mec="k", ms=5)
            labels[graph] = drawn
        _legend(figure, labels)
    return figure


def _on_common_seeds(here: Sequence[MeshComparison]) -> list[MeshComparison]:
    """The cells with the seeds that all of them have, if any: means over other seeds differ by the seeds too."""
    common = set.intersection(*(set(one.cell.seeds) for one in here)) if here else set()
    if not common:
        return list(here)
    cells = {id(one.cell): one.cell.of_seeds(common) for one in here}
    return [MeshComparison(cells[id(one.cell)], cells.get(id(one.mesh), one.mesh)) for one in here]


def _label_gaps(axes: Any, smallest: float) -> None:
    """Label 1, 2 and 5 of each power of ten where the axis has only one or two powers."""
    axes.xaxis.set_minor_formatter(NullFormatter())
    if smallest > 0.02:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))


def _legend(figure: Figure, labels: dict[str, Any]) -> None:
    """Below the panels, in as many columns as fit into the figure."""
    for columns in (4, 3, 2, 1):
        legend = figure.legend(
            list(labels.values()), list(labels), loc="outside lower center", ncols=columns, frameon=False, fontsize=8
        )
        figure.draw_without_rendering()
        if columns == 1 or legend.get_window_extent().width < figure.bbox.width:
            return
        legend.remove()


def _lines(here: Sequence[MeshComparison]) -> Iterator[tuple[tuple[str, str], list[MeshComparison]]]:
    """One line for each method and reach. A mesh has one reach and ends every line of its method."""
    lines: dict[tuple[str, str], list[MeshComparison]] = {}
    for one in here:
        if one.mesh is not None:
            lines.setdefault((one.method, str(one.federation.hops)), []).append(one)
    for key, line in lines.items():
        ends = {id(one.mesh) for one in line}
        yield key, line + [one for one in here if id(one.cell) in ends]


def _but_the_graph(cell: CellResults) -> str:
    return cell.federation.model_dump_json(exclude=OF_THE_GRAPH)


def _mean(cell: CellResults, metric: str) -> float:
    found = cell.metric(metric)
    return float("nan") if found is None else found.mean


@lru_cache(maxsize=256)
def _gap(name: str, nodes: int, degree: int | None, seed: int) -> float:
    """nan where the graph's file cannot be read from here."""
    try:
        return describe(build(name, ranked_names(nodes), degree=degree, seed=seed)).spectral_gap
    except TopologyError as error:
        log.warning("no spectral gap: %s", error)
        return math.nan
