"""One member of six lies in every merge: the others all merge, to one model, within two deadlines. In virtual time."""

import pytest
from conftest import small
from rogue import KINDS
from rogue_time import Played, play_in_memory

FEDERATION = small(nodes=6, rounds=2, warmup=0, merge_every=1, eval_every=2, local_steps=1, batch=4)
WHOLE = 4 * 4810  # bytes of a model


def all_merged(played: Played) -> bool:
    return played.models == 1 and played.completed == played.due == FEDERATION.rounds * (FEDERATION.nodes - 1)


def test_honest_members_wait_for_nobody_and_send_what_the_formula_says() -> None:
    played = play_in_memory(FEDERATION, None)
    assert all_merged(played)
    assert played.deadlines == [0.0, 0.0]


@pytest.mark.parametrize("kind", KINDS)
def test_all_merge_within_two_deadlines(kind: str) -> None:
    played = play_in_memory(FEDERATION, kind)
    assert all_merged(played)
    assert max(played.deadlines) <= 2.0
