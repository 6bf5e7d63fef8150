"""What a report says of methods that are compared at equal bytes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_sweep import make_sweep

from p2p_tally.config import Federation
from p2p_tally.runner.experiments.experiment import load_experiment
from p2p_tally.runner.report.budget_tables import accuracy_table, best_table, budget_blocks, settings_table
from p2p_tally.runner.report.budgets import budgets_of, family, placed
from p2p_tally.runner.report.document import Picture, Table
from p2p_tally.runner.report.frontier_figure import frontier, spread_out
from p2p_tally.runner.report.report import compose
from p2p_tally.runner.report.results import Results, collect
from p2p_tally.runner.report.tables import provenance_table, remarks

BENCH = """
title = "Equal bytes"
[facts]
classes = 10
parameters = 4_810
[base]
rounds = 30
tail = 10
nodes = 4
[[cells]]
name = "mesh-d01-local"
method = "local"
[[grids]]
name = "mesh-{skew}-{way}"
[grids.skew]
d01 = { partition = "dirichlet:0.1" }
d05 = { partition = "dirichlet:0.5" }
[grids.way]
tally-10kB = { method = "tally", merge_every = 0, probes_per_round = 100 }
tally-2MB = { method = "tally", merge_every = 0, probes_per_round = 20_000 }
fedavg-int8-2MB = { method = "fedavg", merge_every = 1 }
fd-10kB = { method = "fd", warmup = 20 }
both-2MB = { method = "tally", merge_every = 2, probes_per_round = 16 }
soft-10kB = { method = "fedmd", merge_every = 0, probes_per_round = 3 }
soft-10kB-liars = { method = "fedmd", merge_every = 0, probes_per_round = 3 }
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("bench")
    (folder / "bench.toml").write_text(BENCH)
    (found,) = collect([make_sweep(folder / "runs", str(folder / "bench.toml"))])
    return found


def test_a_name_says_where_a_cell_stands(results: Results) -> None:
    cells = {one.cell.name: one for one in placed(results)}
    assert len(cells) == len(results.cells) == 15
    one = cells["mesh-d05-fedavg-int8-2MB"]
    assert (one.graph, one.skew, one.method, one.budget, one.limit) == ("mesh", "d05", "fedavg-int8", "2MB", 2_000_000)
    beside = cells["mesh-d01-soft-10kB-liars"]
    assert (beside.method, beside.budget) == ("soft-10kB-liars", "")
    assert budgets_of(list(cells.values())) == ["10kB", "2MB"]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"method": "local"}, "nothing"),
        ({"method": "no-consensus"}, "nothing"),
        ({"method": "tally", "merge_every": 0}, "votes"),
        ({"method": "tally", "merge_every": 5}, "answers and parameters"),
        ({"method": "feddf", "merge_every": 5}, "answers and parameters"),
        ({"method": "rcfd", "merge_every": 0}, "soft labels"),
        ({"method": "fedproto", "merge_every": 0}, "means by class"),
        ({"method": "pame", "merge_every": 1}, "parameters"),
    ],
)
def test_what_travels(options: dict[str, object], kind: str) -> None:
    assert family(Federation.parse(options)) == kind


def test_accuracies_by_budget_with_the_best_of_a_column_in_bold(results: Results) -> None:
    cells = placed(results)
    table = accuracy_table(cells)
    assert list(table.header) == ["method", "d01, 10kB", "d01, 2MB", "d05, 10kB", "d05, 2MB"]
    rows = {row[0].strip("`"): list(row[1:]) for row in table.rows}
    assert rows["both"][0] == rows["both"][2] == "–"
    for column, (skew, budget) in enumerate([("d01", "10kB"), ("d01", "2MB"), ("d05", "10kB"), ("d05", "2MB")]):
        best = max((one for one in cells if (one.skew, one.budget) == (skew, budget)), key=lambda one: one.mean("tail"))
        (bold,) = [name for name, row in rows.items() if row[column].startswith("**")]
        assert bold == best.method
        assert rows[bold][column] == f"**{best.mean('tail'):.1f}**"  # made up without accuracies on own data
    assert rows["local"][0] != "–"
    assert rows["local"][1:] == ["–", "–", "–"]


def test_the_best_with_each_budget_or_less(results: Results) -> None:
    cells = [one for one in placed(results) if one.budget]
    rows = [list(row) for row in best_table(placed(results)).rows]
    skews, budgets = ("d01", "d05"), ("10kB", "2MB")
    assert [row[:3] for row in rows] == [["mesh", skew, budget] for skew in skews for budget in budgets]
    for _, skew, budget, best, without, own, _ in rows:
        found = [one for one in cells if one.skew == skew and one.budget in ("10kB", budget)]
        for said, known in ((best, found), (without, [one for one in found if one.method in ("fd", "fedavg-int8")])):
            highest = max(known, key=lambda one: one.mean("tail"))
            assert said == f"`{highest.method}` {highest.mean('tail'):.1f}"
        assert own == "–"  # made up without


def test_settings_by_budget(results: Results) -> None:
    rows = {row[0].strip("`"): list(row[1:]) for row in settings_table(placed(results)).rows}
    assert rows["tally"] == ["0.001", "100 probes; 81 %", "20000 probes; 81 %"]  # 100 B x 3 x 27 rounds of 10,000
    assert rows["fd"][1].startswith("16 probes, from round 20; ")
    assert rows["fedavg-int8"][1:] == ["–", "merge every 1; 43 %"]  # 30 x 2 x 3/4 x 4 x 4,810 of 2,000,000
    assert "local" not in rows


def test_the_figure_names_every_point_once_and_joins_what_nothing_cheaper_beats(results: Results) -> None:
    figure = frontier(placed(results))
    assert figure is not None
    for axes, skew in zip(figure.axes, ("d01", "d05"), strict=True):
        cells = [one for one in placed(results) if one.skew == skew and one.budget]
        named = [text.get_text() for text in axes.texts if text.get_text() != "local"]
        assert sorted(named) == sorted(one.method for one in cells)
        (line,) = [line for line in axes.lines if line.get_linestyle() == "--" and len(line.get_xdata()) > 1]
        corners = list(zip(line.get_xdata(), line.get_ydata(), strict=True))[:-1]
        for one in cells:
            beaten = [place for place in corners if place[0] <= one.mean("payload") and place[1] >= one.mean("tail")]
            assert beaten, one.method
    assert "local" in [text.get_text() for text in figure.axes[0].texts]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30).map(sorted), st.floats(0.1, 3))
def test_names_keep_their_order_and_their_distance_and_stay_inside(wanted: list[float], step: float) -> None:
    places = np.array(spread_out(wanted, step, 0.0, 100.0))
    assert (np.diff(places) >= step - 1e-6).all()
    assert places[0] >= -1e-6
    assert places[-1] <= 100 + 1e-6


def test_names_that_have_room_stay_where_they_are() -> None:
    assert spread_out([1.0, 5.0, 5.0, 9.0], 1.0, 0.0, 10.0) == [1.0, 4.5, 5.5, 9.0]


def test_a_report_shows_budgets_in_the_place_of_all_cells(results: Results, tmp_path: Path) -> None:
    blocks = compose([results])
    assert [block.name for block in blocks if isinstance(block, Picture)] == ["bench-mesh"]
    assert not any(block.header[0] == "cell" for block in blocks if isinstance(block, Table))
    (tmp_path / "few.toml").write_text(BENCH.replace("[[grids]]", "[[grids]]\nleave_out = ['mesh-d05-*']"))
    (few,) = collect([make_sweep(tmp_path / "runs", str(tmp_path / "few.toml"))])
    assert budget_blocks(few, "few") == []


def test_many_numbers_of_probes_are_told_by_the_smallest_and_the_largest(tmp_path: Path) -> None:
    cells = "".join(
        f"[[cells]]\nname = 'p{count}'\nmethod = 'tally'\nmerge_every = 0\nprobes_per_round = {count}\n"
        for count in range(2, 12)
    )
    (tmp_path / "many.toml").write_text(BENCH[: BENCH.index("[[cells]]")] + cells)
    (many,) = collect([make_sweep(tmp_path / "runs", str(tmp_path / "many.toml"), seeds=(0,))])
    rows = {row[0]: row[1] for row in provenance_table(many).rows}
    assert rows["**probes**"] == "held out of the data, 2 to 11 a round"


def test_of_many_cells_without_a_run_those_that_begin_alike_are_counted(tmp_path: Path) -> None:
    (tmp_path / "bench.toml").write_text(BENCH)
    cells = [cell.name for cell in load_experiment(str(tmp_path / "bench.toml")).cells]
    left_out = tuple(name for name in cells if name.startswith("mesh-d05") or name == "mesh-d01-both-2MB")
    (some,) = collect([make_sweep(tmp_path / "runs", str(tmp_path / "bench.toml"), (0,), left_out)])
    assert remarks(some)[-1] == "No finished run: `mesh-d01-*` (1), `mesh-d05-*` (7)."
