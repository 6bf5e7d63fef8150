"""Grids: many cells of an experiment file in a few lines."""

from pathlib import Path

import pytest

from p2p_tally.errors import ConfigError
from p2p_tally.runner.experiments.experiment import load_experiment
from p2p_tally.runner.experiments.grids import expand

GRID = {
    "name": "{graph}-n{nodes}-{way}",
    "leave_out": ["mesh-n4-*"],
    "rounds": 7,
    "facts": {"classes": 10, "parameters": 1},
    "nodes": [4, 8],
    "graph": {"ring": {"topology": "ring"}, "mesh": {"topology": "mesh"}},
    "way": {"tally": {"method": "tally"}, "fedavg": {"method": "fedavg", "merge_every": 5}},
}


def test_every_combination_but_those_left_out() -> None:
    cells = expand(GRID, "here")
    assert [cell["name"] for cell in cells] == [
        "ring-n4-tally",
        "ring-n4-fedavg",
        "ring-n8-tally",
        "ring-n8-fedavg",
        "mesh-n8-tally",
        "mesh-n8-fedavg",
    ]
    assert cells[1] == {
        "name": "ring-n4-fedavg",
        "rounds": 7,
        "facts": {"classes": 10, "parameters": 1},
        "nodes": 4,
        "topology": "ring",
        "method": "fedavg",
        "merge_every": 5,
    }


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": None}, "here: name: accepted is a text with the axes in braces"),
        ({"name": "{graph}-{nodes}"}, "accepted is each axis once in braces; the axes: nodes, graph, way"),
        ({"name": "{graph}-{nodes}-{way}-{x}"}, "accepted is each axis once in braces"),
        ({"name": "{graph.__class__}-{nodes}-{way}"}, "accepted is each axis once in braces"),
        ({"name": "{graph"}, "expected '}'"),
        ({"leave_out": ["star-*"]}, "leave_out 'star-\\*': fits no cell of the grid"),
        ({"leave_out": "star-*"}, "leave_out: accepted is a list of patterns"),
        ({"nodes": []}, "nodes: accepted is at least one choice"),
        ({"graph": {"ring": "ring"}}, "graph, ring: accepted is a table of options"),
    ],
)
def test_a_bad_grid_is_one_line(changed: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expand({**GRID, **changed}, "here")


def test_a_grid_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        """
engine = "stacked"
[facts]
classes = 10
parameters = 4_810
[[cells]]
name = "local"
method = "local"
[[grids]]
name = "{graph}-{nodes}"
nodes = [8, 16]
[grids.graph]
ring = { topology = "ring" }
far = { topology = "gossip", degree = 4 }
"""
    )
    experiment = load_experiment(str(path))
    assert [cell.name for cell in experiment.cells] == ["local", "ring-8", "far-8", "ring-16", "far-16"]
    assert experiment.cells[-1].federation.degree == 4
    assert experiment.engine == "stacked"
    path.write_text(path.read_text().replace('"stacked"', '"warp"'))
    with pytest.raises(ConfigError, match=r"mine.toml: engine 'warp': accepted is exact, stacked or auto"):
        load_experiment(str(path))
