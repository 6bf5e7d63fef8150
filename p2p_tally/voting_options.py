"""How a peer votes and what it makes of votes: the second part of a federation's options."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator

from p2p_tally.option_types import ConsensusWeight, Recipe
from p2p_tally.options import option
from p2p_tally.round_options import RoundOptions

# Options under one name, as they were found to work together (docs/results.md).
RECIPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "skewed": {"balance": 0.5, "calibrate": 0.5},
}


class VotingOptions(RoundOptions):
    """What makes votes worth more where the peers' data differ. Each uses only what a peer knows itself."""

    recipe: Recipe = option(
        "plain",
        "skewed: options that were found to help where peers hold different classes, and to harm on text; what is "
        "given besides wins",
        "plain or skewed",
        metavar="NAME",
        agreed=True,
    )
    balance: float = option(
        0.0,
        "local loss: how far it undoes the skew of the peer's own class counts; 0: plain cross-entropy, 1: all of it",
        "a number from 0",
        metavar="B",
        group="Votes",
        ge=0,
    )
    calibrate: float = option(
        0.0,
        "how far a peer takes its own mean prediction out of what it answers; 0: not at all, 1: all of it",
        "a number from 0",
        metavar="B",
        group="Votes",
        ge=0,
    )
    abstain: (
        Annotated[float, Field(ge=0, lt=1)] | Annotated[str, Field(pattern=r"^below:(0(\.[0-9]*)?|\.[0-9]+|1(\.0*)?)$")]
    ) = option(
        0.0,
        "methods that send votes: the share of its probes on which a peer has no opinion, the least confident ones; "
        "below:P: those where its likeliest class is less likely than P",
        "a number from 0, below 1, or below:P with a probability P",
        metavar="SHARE|below:P",
        group="Votes",
        agreed=True,
    )
    consensus_weight: ConsensusWeight = option(
        "fixed",
        "fixed: --alpha, --warmup and --kl-decay tell how much the consensus counts; agreement: so does a round's "
        "votes, by how far they agree beyond chance; margin: so does each probe's, by how far the first class is above "
        "the second. With these two there is no warm-up unless one is given",
        "fixed, agreement or margin",
        metavar="HOW",
        group="Votes",
        agreed=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _with_recipe(cls, given: Any) -> Any:
        """What a recipe sets, where it is not given itself. So a file that was written from a run names all of it."""
        if not isinstance(given, Mapping):
            return given
        return {**RECIPES.get(str(given.get("recipe")), {}), **given}
