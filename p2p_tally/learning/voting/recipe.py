"""Recipes: several voting options under one name, as they were found to work together (docs/results.md).

An option that the operator gives wins over the recipe's. A method takes of a recipe what it can use: one that sends no
votes takes the local loss only.
"""

from typing import Any

from p2p_tally.config import Federation
from p2p_tally.learning.methods import Sends, method_of

RECIPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "skewed": {"balance": 0.5, "calibrate": 0.5},
}

# Options of a recipe that only methods use which send answers.
OF_ANSWERS = {"calibrate", "abstain", "tally_weights", "consensus_weight"}


def with_recipe(federation: Federation) -> Federation:
    """The federation with the options of its recipe filled in."""
    sends = method_of(federation).sends
    taken = {
        name: value
        for name, value in RECIPES[federation.recipe].items()
        if name not in federation.model_fields_set
        and (sends is not Sends.NOTHING or name not in OF_ANSWERS)
        and (sends is Sends.VOTES or name != "abstain")
    }
    return federation.model_copy(update=taken)
