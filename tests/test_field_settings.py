"""The bench at equal bytes: every cell keeps within its budget, and its settings are those that are worked out."""

import re
from collections.abc import Iterator

import field_settings
import pytest
from field_settings import BUDGETS, SETUPS, Entry, entry, federation_options, fitted, merges, sent

from p2p_tally.runner.experiments.experiment import Cell, load_experiment
from p2p_tally.runner.experiments.payload import cell_bytes

DIGITS = SETUPS["field"]


def budgeted(preset: str) -> Iterator[tuple[Cell, str]]:
    """The cells with a budget, and its name."""
    for cell in load_experiment(preset).cells:
        found = re.search(r"-(100kB|1MB|10MB)", cell.name)
        if found:
            yield cell, found[1]


@pytest.mark.parametrize("preset", SETUPS)
def test_every_cell_spends_a_third_of_its_budget_or_more_and_never_more_than_it(preset: str) -> None:
    cells = list(budgeted(preset))
    assert len(cells) > 200
    for cell, budget in cells:
        assert BUDGETS[budget] / 3 <= cell_bytes(cell).sent_bytes <= BUDGETS[budget], cell.name


@pytest.mark.parametrize("preset", SETUPS)
@pytest.mark.parametrize("name", [one.name for one in field_settings.ENTRIES][::9])
def test_a_preset_has_the_settings_that_are_worked_out(preset: str, name: str) -> None:
    """Of some methods, with the middle budget on the mesh and on gossip."""
    setup, cells = SETUPS[preset], {cell.name: cell.federation for cell in load_experiment(preset).cells}
    for graph in field_settings.GRAPHS:
        found = fitted(setup, entry(name), graph, "d01", BUDGETS["1MB"])
        cell = cells.get(f"{graph}-d01-{name}-1MB")
        assert (cell is None) == (found is None)
        for key, value in (found or {}).items():
            assert getattr(cell, key) == value


def test_a_merge_of_ten_peers_by_hand() -> None:
    """It sends 2 x 9/10 x 4 bytes x 4,810 = 34,632 bytes. A megabyte is 28 of them: every 6 rounds makes 25, every 5
    would make 30. 100 kB are 2: every 51 rounds makes 2, every 50 would make 3."""
    plain = federation_options(entry("fedavg"), "mesh", "d05")
    assert sent(DIGITS, {**plain, "merge_every": 150}) == 34_632
    chosen = [fitted(DIGITS, entry("fedavg"), "mesh", "d05", budget) for budget in (1_000_000, 100_000)]
    assert [options["merge_every"] for options in chosen if options] == [6, 51]


def test_a_vote_by_hand() -> None:
    """A byte for each probe to nine others in 135 rounds: 1,215 bytes a probe, so 82 probes in 100 kB."""
    found = fitted(DIGITS, entry("tally"), "mesh", "d01", 100_000)
    assert found is not None
    assert found["probes_per_round"] == 82


def test_what_cannot_use_a_budget_has_no_cell() -> None:
    assert fitted(DIGITS, entry("tally"), "mesh", "d01", 10_000_000) is None  # not with all probes of the bench
    assert fitted(DIGITS, entry("one-peer"), "mesh", "d01", 1_000_000) is None  # ten is no power of two
    dear = Entry("dear", {"method": "dpfl"}, merges)
    assert fitted(SETUPS["field-features"], dear, "gossip", "d01", 100_000) is None  # one merge takes more
