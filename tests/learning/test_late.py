"""What waits for the next round with --overlap, and that a checkpoint brings it back."""

import numpy as np
import pytest

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.consensus import Answer
from p2p_tally.learning.late import Late, LateMerge, LateVotes
from p2p_tally.learning.schedule import resolve

VOTES = np.array([1, 0, 2])
SOFT = np.array([[0.25, 0.75], [1.0, 0.0]], np.float32)


@pytest.mark.parametrize(
    "answers",
    [
        {"a": VOTES, "node-10": VOTES + 1},
        {"a.b": SOFT},
        {"node-2": (VOTES[:, None], SOFT[:1]), "node-10": (VOTES, SOFT)},
        {},
    ],
    ids=str,
)
def test_votes_come_back(answers: dict[str, Answer]) -> None:
    late, other = Late(), Late()
    late.keep_votes(LateVotes(7, answers))
    other.restore(late.state)
    back = other.take_votes()
    assert back is not None and back.round == 7 and back.answers.keys() == answers.keys()
    for name, answer in answers.items():
        found = back.answers[name]
        assert isinstance(found, tuple) == isinstance(answer, tuple)
        arrays = [(found, answer)] if isinstance(answer, np.ndarray) else zip(found, answer, strict=True)
        for one, two in arrays:
            np.testing.assert_array_equal(one, two)
    assert other.state == {} and other.take_votes() is None


@pytest.mark.parametrize("kept", [None, np.array([0.5, 0.0], np.float32)])
def test_a_merge_comes_back(kept: np.ndarray | None) -> None:
    late, other = Late(), Late()
    late.keep_merge(LateMerge(np.zeros(2, np.float32), np.ones(2, np.float32), kept))
    other.restore(late.state)
    back = other.take_merge()
    assert back is not None and back.average.tolist() == [1.0, 1.0] and back.snapshot.tolist() == [0.0, 0.0]
    assert (back.kept is None) == (kept is None)
    other.restore({})
    assert other.take_merge() is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "feddf"}, "the method feddf learns from the merged model"),
        ({"method": "local"}, "the method local with these options sends neither votes nor parameters"),
        ({"method": "no-consensus"}, "sends neither votes nor parameters"),
        ({"method": "tally", "alpha": 1.0, "merge_every": 0}, "sends neither votes nor parameters"),
        ({"method": "fedavg", "merge_every": 0}, "sends neither votes nor parameters"),
        ({"leave": "node-1@5"}, "without --join and --leave"),
    ],
    ids=str,
)
def test_what_cannot_overlap_is_refused_in_one_line(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        resolve(Federation.parse({"overlap": True, **options}), labelled=True)
    assert "\n" not in str(caught.value) and "accepted" in str(caught.value)


def test_peers_must_agree_on_it_and_nothing_is_said_without_it() -> None:
    assert Federation.parse({"overlap": True}).agreed()["overlap"] is True
    assert "overlap" not in Federation().agreed()
