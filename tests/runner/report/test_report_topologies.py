"""What a report says of cells that differ in their graph."""

from dataclasses import replace
from pathlib import Path

import pytest
from made_up_sweep import make_sweep

from p2p_tally.runner.report.document import Bullets, Picture, Table
from p2p_tally.runner.report.report import compose, write_report
from p2p_tally.runner.report.results import CellResults, Results, collect
from p2p_tally.runner.report.topologies import MeshComparison, compare_with_meshes, compares_graphs, graph_blocks
from p2p_tally.runner.report.verdicts import Judged

GRID = """
title = "Graphs"
[facts]
classes = 10
parameters = 4_810
[base]
rounds = 60
tail = 20
[[grids]]
name = "{graph}-n{nodes}-{way}-{reach}"
leave_out = ["mesh-*-all", "*-fedavg-all"]
nodes = [8, 16]
[grids.graph]
ring = { topology = "ring" }
gossip = { topology = "gossip", degree = 4 }
mesh = { topology = "mesh" }
[grids.way]
tally = { method = "tally", merge_every = 0 }
fedavg = { method = "fedavg", merge_every = 20 }
[grids.reach]
near = { hops = 1 }
all = { hops = "all" }
[[cells]]
name = "around"
topology = "ring"
nodes = 8
method = "fedavg"
merge_every = 20
merge_over = "ring"
"""

# Few columns of panels, and names too long for four columns of the legend.
WIDE = """
title = "Long names"
[facts]
classes = 10
parameters = 4_810
[base]
rounds = 60
tail = 20
merge_every = 20
[[grids]]
name = "{graph}-{way}-{over}-{reach}"
leave_out = ["mesh-*-ring-*", "mesh-*-two", "mesh-*-all", "*-coded-ring-*"]
nodes = 8
method = "tally"
[grids.graph]
ring = { topology = "ring" }
mesh = { topology = "mesh" }
[grids.way]
tally = { merge_every = 20 }
coded = { merge_every = 20, merge_precision = "int8" }
[grids.over]
links = { merge_over = "neighbours" }
ring = { merge_over = "ring" }
[grids.reach]
near = { hops = 1 }
two = { hops = 2 }
all = { hops = "all" }
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("graphs")
    (folder / "graphs.toml").write_text(GRID)
    [found] = collect([make_sweep(folder / "sweep", str(folder / "graphs.toml"))])
    return found


def test_each_sparse_cell_has_the_mesh_of_the_same_peers_and_method(results: Results) -> None:
    meshes = {one.cell.name: one.mesh.name if one.mesh else None for one in compare_with_meshes(results)}
    assert meshes["ring-n8-tally-all"] == "mesh-n8-tally-near"
    assert meshes["gossip-n16-fedavg-near"] == "mesh-n16-fedavg-near"
    assert meshes["mesh-n16-tally-near"] is None
    assert meshes["around"] == "mesh-n8-fedavg-near"
    around = next(one for one in compare_with_meshes(results) if one.cell.name == "around")
    assert (around.method, around.reach) == ("fedavg-fa20 around a ring", "–")
    ring = next(one for one in compare_with_meshes(results) if one.cell.name == "ring-n8-tally-near")
    assert (ring.graph, ring.reach, ring.method) == ("ring", "neighbours", "tally")
    assert ring.share == pytest.approx(2 / 7)
    assert ring.against is not None and ring.against.outcome == "does not hold"


def test_the_words_are_made_of_the_numbers(results: Results, tmp_path: Path) -> None:
    blocks = graph_blocks(results, "graphs")
    assert [block.name for block in blocks if isinstance(block, Picture)] == ["graphs-gap"]
    [table] = [block for block in blocks if isinstance(block, Table)]
    assert len(table.rows) == 13
    row = next(row for row in table.rows if row[0] == "`ring-n16-tally-near`")
    assert row[1:4] == ["ring", "0.0507", "neighbours"]
    write_report([results.cells[0].runs[0].folder.parent.parent], tmp_path / "graphs.md")  # type: ignore[union-attr]
    text = (tmp_path / "graphs.md").read_text()
    assert "Of 13 sparse cells 13 are less accurate than the mesh" in text
    assert "- `tally`, sent to everybody, against the mesh: ring -" in text
    assert "0.13 to 0.57 of the mesh's bytes" in text
    assert "16 peers: no cell that sends less than its mesh surely loses less than 0.5 points." in text
    assert (tmp_path / "graphs-figures/graphs-gap.svg").is_file()


def test_a_figure_compares_what_was_run_on_the_same_seeds(results: Results) -> None:
    """Of two seeds one may be missing in some cells: the others' means would be of other runs."""
    name = "ring-n16-tally-near"
    cells = [replace(cell, runs=cell.runs[:1]) if cell.name == name else cell for cell in results.cells]
    [picture] = [one for one in graph_blocks(replace(results, cells=cells), "graphs") if isinstance(one, Picture)]

    def drawn(column: int) -> set[float]:
        lines = picture.figure.axes[column].lines
        return {round(float(y), 6) for line in lines for y in line.get_ydata() if line.get_marker() == "None"}

    def means(nodes: int, seeds: int) -> set[float]:
        tallies = [cell for cell in results.cells if cell.federation.nodes == nodes and "-" in cell.name]
        found = [replace(cell, runs=cell.runs[:seeds]).metric("tail") for cell in tallies]
        return {round(one.mean, 6) for one in found if one is not None}

    assert means(8, 2) <= drawn(0)
    assert drawn(1) == means(16, 1)


def _against(margin: float, noise: float | None) -> MeshComparison:
    """A cell whose comparison with its mesh has come out so."""
    placed = MeshComparison(CellResults("sparse", []), CellResults("mesh", []))
    placed.__dict__["against"] = Judged(90 + margin, 90, ">", margin, noise)
    return placed


@pytest.mark.parametrize(
    ("margin", "noise", "outcome", "loses_little"),
    [
        (0.0, 0.1, "no difference seen", True),
        (-0.2, 0.1, "less", True),
        (-0.2, 0.4, "no difference seen", False),
        (-0.6, 0.1, "less", False),
        (0.3, 0.1, "more", True),
        (-0.1, None, "no difference seen", False),
    ],
)
def test_less_the_same_and_what_is_surely_little(
    margin: float, noise: float | None, outcome: str, loses_little: bool
) -> None:
    placed = _against(margin, noise)
    assert (placed.outcome, placed.loses_little) == (outcome, loses_little)


def test_runs_equal_in_every_digit_are_the_same_even_on_one_seed(results: Results) -> None:
    mesh = next(cell for cell in results.cells if cell.name == "mesh-n8-tally-near")
    one_seed = MeshComparison(CellResults("relayed", mesh.runs[:1]), mesh)
    assert one_seed.against is not None and one_seed.against.noise != 0.0  # chance, as for any two cells
    assert (one_seed.outcome, one_seed.noise, one_seed.loses_little) == ("the same", 0.0, True)
    other = next(one for one in compare_with_meshes(results) if one.cell.name == "ring-n8-tally-near")
    assert not other.same_run


def test_a_graph_whose_cells_are_all_the_meshs_own_run_is_said_to_be_the_same(results: Results) -> None:
    mesh = next(cell for cell in results.cells if cell.name == "mesh-n8-tally-near")
    sparse = next(cell for cell in results.cells if cell.name == "ring-n8-tally-all")
    runs = [replace(run, lines=other.lines) for run, other in zip(sparse.runs, mesh.runs, strict=True)]
    equal = Results("equal", "Equal", [mesh, CellResults(sparse.name, runs)])
    [said] = [block for block in graph_blocks(equal, "equal") if isinstance(block, Bullets)]
    assert "`tally`, sent to everybody, against the mesh: ring the same in every digit; 1.00 of the mesh's bytes." in (
        said.items
    )


def test_a_graphs_file_that_is_gone_costs_its_gap_and_no_more(results: Results, tmp_path: Path) -> None:
    mesh = next(cell for cell in results.cells if cell.name == "mesh-n8-tally-near")
    sparse = next(cell for cell in results.cells if cell.name == "ring-n8-tally-near")
    lost = {"topology": f"file:{tmp_path / 'gone.txt'}"}
    runs = [replace(run, federation=run.federation.model_copy(update=lost)) for run in sparse.runs]
    blocks = graph_blocks(Results("lost", "Lost", [mesh, CellResults("from-file", runs)]), "lost")
    [table] = [block for block in blocks if isinstance(block, Table)]
    assert [row[:3] for row in table.rows] == [["`from-file`", lost["topology"], "–"]]


def test_the_legend_stays_inside_the_figure(tmp_path: Path) -> None:
    (tmp_path / "wide.toml").write_text(WIDE)
    [wide] = collect([make_sweep(tmp_path / "sweep", str(tmp_path / "wide.toml"), seeds=(0,))])
    [picture] = [block for block in graph_blocks(wide, "wide") if isinstance(block, Picture)]
    [legend] = picture.figure.legends
    picture.figure.draw_without_rendering()
    drawn = legend.get_window_extent()
    assert drawn.x0 >= 0 and drawn.x1 <= picture.figure.bbox.width


def test_other_reports_say_nothing_of_graphs(tmp_path: Path) -> None:
    [other] = collect([make_sweep(tmp_path / "sweep", "rcfd-small", seeds=(0,))])
    assert not compares_graphs(other)
    assert not any("mesh of the same" in str(block) for block in compose([other]))
