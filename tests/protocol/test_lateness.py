"""Who was much later than most in a wait."""

import pytest

from p2p_tally.ids import NodeName
from p2p_tally.protocol.lateness import SLOWER, Lateness

NAMES = [NodeName(name) for name in "abcdefgh"]
WORK = 1.0


def waited(*seconds: float | None) -> Lateness:
    """A node that works for a second in each round, and then waits for peers that come after so many seconds; None: it
    does not come."""
    lateness, peers = Lateness(), NAMES[: len(seconds)]
    lateness.begin(1, 0.0, peers, peers)
    lateness.end(0.0)
    lateness.begin(2, WORK, peers, [peer for peer, after in zip(peers, seconds, strict=True) if after != 0.0])
    for peer, after in zip(peers, seconds, strict=True):
        if after:
            lateness.came(peer, WORK + after)
    lateness.end(100.0)
    return lateness


@pytest.mark.parametrize(
    ("seconds", "usual", "late"),
    [
        ((), None, {}),
        ((50.0,), 50.0, {}),  # one alone is like most
        ((None,), None, {}),
        ((0.0, 50.0), 0.0, {"b": 50.0 - SLOWER}),  # the own work is what most need
        ((0.0, 4.0), 0.0, {}),
        ((2.0, 50.0), 2.0, {"b": 50.0 - 2 * SLOWER}),
        ((20.0, 50.0), 20.0, {}),
        ((0.5, 0.0, 0.7, 9.0), 0.5, {"d": 9.0 - SLOWER}),
        ((30.0, 40.0, 0.0, 0.1), 0.1, {"a": 30.0 - SLOWER, "b": 40.0 - SLOWER}),
        ((30.0, 40.0, 0.0), 30.0, {}),  # most are slow
        ((None, None, None, 9.0), None, {}),  # half did not come: nobody knows what most need
    ],
)
def test_what_most_need_and_who_was_much_later(
    seconds: tuple[float | None, ...], usual: float | None, late: dict[str, float]
) -> None:
    lateness = waited(*seconds)
    assert lateness.usual == pytest.approx(usual) if usual is not None else lateness.usual is None
    assert lateness.excesses() == pytest.approx(late)


def test_several_waits_of_a_round_count_as_one() -> None:
    """Between two waits of a round there is no work that says how long a round takes."""
    lateness = waited(0.0, 50.0)
    lateness.begin(2, 100.001, NAMES[:2], NAMES[:2])
    lateness.end(100.002)
    lateness.begin(3, 101.002, NAMES[:2], NAMES[1:2])
    lateness.came(NAMES[1], 101.002 + SLOWER + 1)
    assert lateness.excesses() == pytest.approx({"b": 1.0})


def test_before_the_first_round_is_over_nothing_is_late() -> None:
    lateness = Lateness()
    lateness.begin(1, 0.0, NAMES, NAMES)
    for peer in NAMES:
        lateness.came(peer, 0.0)
    lateness.came(NAMES[0], 60.0)  # the first counts
    assert lateness.excesses() == {} and lateness.usual == 0.0
