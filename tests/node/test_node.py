"""What a node refuses before its first round."""

from types import SimpleNamespace
from typing import Any

import pytest

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.node.ballot_format import ballot_format


def learner(rounds: int, votes: int) -> Any:
    return SimpleNamespace(
        federation=Federation(method="tally", rounds=rounds), probes=SimpleNamespace(votes_per_round=votes), classes=10
    )


@pytest.mark.parametrize(("rounds", "votes"), [(65_535, 65_536), (65_536, 65_535)])
def test_long_ballots_or_many_rounds(rounds: int, votes: int) -> None:
    assert ballot_format(learner(rounds, votes)).largest == votes


def test_long_ballots_and_many_rounds_are_refused() -> None:
    """Their votes would cost more than 24 bytes over the ballot."""
    with pytest.raises(ConfigError) as refusal:
        ballot_format(learner(65_536, 65_536))
    assert str(refusal.value) == (
        "--rounds 65536: accepted is at most 65535 where ballots are longer than 65535 bytes; here they are up to 65536"
    )
