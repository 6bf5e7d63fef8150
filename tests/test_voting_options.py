"""Recipes: what they set, and what wins over them."""

import pytest

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.voting_options import RECIPES


def test_plain_changes_nothing() -> None:
    assert Federation(recipe="plain") == Federation()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_sets_its_options(name: str) -> None:
    federation = Federation.parse({"recipe": name})
    assert {key: getattr(federation, key) for key in RECIPES[name]} == RECIPES[name]


def test_what_is_given_wins() -> None:
    federation = Federation(recipe="skewed", balance=0.0)
    assert (federation.balance, federation.calibrate) == (0.0, RECIPES["skewed"]["calibrate"])


def test_a_file_written_from_a_run_says_the_same() -> None:
    """A sweep gives its runs files in which every option stands."""
    for once in (Federation(recipe="skewed"), Federation(recipe="skewed", calibrate=0.25)):
        assert Federation.parse(once.model_dump(mode="json")) == once


def test_a_recipe_that_is_none() -> None:
    with pytest.raises(ConfigError, match=r"^--recipe best: accepted is plain or skewed$"):
        Federation.parse({"recipe": "best"})
