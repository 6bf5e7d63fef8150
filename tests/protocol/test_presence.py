"""How many members a round needs, and who is worth waiting for: tables."""

import pytest

from p2p_tally.errors import ConfigError
from p2p_tally.protocol.presence import chosen_presence, least_present, worth_waiting_for


@pytest.mark.parametrize(("members", "least"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (8, 5), (9, 5)])
def test_a_majority_and_two(members: int, least: int) -> None:
    assert least_present(members) == least
    assert least_present(members, 1) == 1
    assert members == 1 or 2 * least > members  # of two parts at most one has so many


@pytest.mark.parametrize(
    ("theirs", "own", "rounds", "worth"),
    [(90, 100, 100, True), (89, 100, 100, False), (4, 5, 5, True), (3, 5, 5, False), (0, 200, 300, False)],
)
def test_a_tenth_of_the_rounds_is_worth_waiting_for(theirs: int, own: int, rounds: int, worth: bool) -> None:
    assert worth_waiting_for(theirs, own, rounds) is worth


def test_more_than_there_are_members_is_refused() -> None:
    assert chosen_presence(None, 2) is None
    assert chosen_presence(2, 2) == 2
    with pytest.raises(ConfigError, match=r"^--least-present 3: accepted is 1 to 2, the number of members$"):
        chosen_presence(3, 2)
