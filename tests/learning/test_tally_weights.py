import logging
from typing import Any

import pytest

from p2p_tally import Federation
from p2p_tally.learning.schedule import resolve
from p2p_tally.learning.voting.tally_weights import LEAST_VOTERS, MOST_CLASSES


def chosen(labelled: bool = False, classes: int = 10, **options: Any) -> str:
    return resolve(Federation(**options), labelled=labelled, classes=classes).tally_weights


@pytest.mark.parametrize(
    "options",
    [{}, {"nodes": LEAST_VOTERS}, {"classes": MOST_CLASSES}, {"topology": "ring", "hops": "all"}, {"abstain": 0.5}],
)
def test_voters_are_weighed_where_votes_are_all_that_is_learned_from(options: dict[str, Any]) -> None:
    assert chosen(**options) == "reliability"
    assert chosen(labelled=True, alpha=0.0, **options) == "reliability"
    assert chosen(labelled=True, **options) == "uniform"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"nodes": LEAST_VOTERS - 1}, ""),
        ({"method": "fedmd"}, ""),
        ({"method": "feddf"}, ""),
        ({"method": "fedct"}, ""),
        ({"topology": "ring"}, "not all hear all votes"),
        ({"topology": "neighbours"}, "not all hear all votes"),
        ({"classes": MOST_CLASSES + 1}, "each comes too rarely"),
        ({"exam": 20}, "--exam"),
        ({"inverse_agreement": 0.5}, "--inverse-agreement"),
    ],
)
def test_where_they_are_not_and_the_log_says_why(
    options: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert chosen(**options) == "uniform"
    assert (why in caplog.text) if why else ("--tally-weights" not in caplog.text)


@pytest.mark.parametrize("given", ["uniform", "mixing", "reliability"])
def test_what_is_given_stays(given: Any) -> None:
    assert chosen(tally_weights=given) == chosen(labelled=True, tally_weights=given) == given
