"""Recipes: what they set, what wins over them, and what a method takes of them."""

import pytest

from p2p_tally.config import Federation
from p2p_tally.learning.schedule import resolve
from p2p_tally.learning.voting.recipe import RECIPES, with_recipe


def test_plain_changes_nothing() -> None:
    federation = Federation(method="tally")
    assert with_recipe(federation) == federation


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_sets_its_options(name: str) -> None:
    federation = resolve(Federation.parse({"recipe": name}), labelled=False)
    assert {key: getattr(federation, key) for key in RECIPES[name]} == RECIPES[name]


def test_what_is_given_wins() -> None:
    federation = resolve(Federation(recipe="skewed", balance=0.0), labelled=False)
    assert federation.balance == 0.0
    assert federation.calibrate == RECIPES["skewed"]["calibrate"]


def test_resolving_again_or_from_a_file_changes_nothing() -> None:
    once = resolve(Federation(recipe="skewed", calibrate=0.25), labelled=False)
    assert resolve(once, labelled=False) == once
    assert resolve(Federation.parse(once.model_dump(mode="json")), labelled=False) == once


def test_a_method_without_answers_takes_the_local_loss_only() -> None:
    federation = resolve(Federation(recipe="skewed", method="fedavg"), labelled=False)
    assert federation.balance == RECIPES["skewed"]["balance"]
    assert (federation.calibrate, federation.abstain, federation.tally_weights) == (0.0, 0.0, "uniform")


def test_every_recipe_can_be_chosen() -> None:
    for name in RECIPES:
        assert Federation.parse({"recipe": name}).recipe == name
