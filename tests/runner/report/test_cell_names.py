"""How tables spell a federation's method."""

from dataclasses import replace

import pytest

from p2p_tally.config import Federation
from p2p_tally.learning.methods import METHODS
from p2p_tally.runner.runs.run import cell_name


@pytest.mark.parametrize(
    ("method", "merge_every", "name"),
    [
        ("tally", 50, "tally+fa50"),
        ("tally", 0, "tally"),
        ("no-consensus", 20, "no-consensus+fa20"),
        ("fedmd", 5, "fedmd+fa5"),
        ("rcfd", 5, "rcfd+fa5"),
        ("fedavg", 50, "fedavg-fa50"),
        ("fedprox", 50, "fedprox-fa50"),
        ("diloco", 50, "diloco-fa50"),
        ("feddf", 1, "feddf"),
        ("local", 0, "local"),
        ("local", 5, "local"),
    ],
)
def test_a_method_and_its_merges(method: str, merge_every: int, name: str) -> None:
    assert cell_name(Federation(method=method, merge_every=merge_every)) == name


def test_a_row_of_ones_own_is_shown_by_its_label() -> None:
    row = replace(METHODS["tally"], name="mine", label="my votes")
    assert cell_name(Federation(method=row, merge_every=50)) == "my votes+fa50"
