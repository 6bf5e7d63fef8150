"""Where a node is in its run: what moves it, and what those who look are told."""

import json

from conftest import small

from p2p_tally.node.position import Position


def played(position: Position) -> None:
    position.begin_round()
    position.finish_round()


def test_a_run_from_the_first_round_to_the_last() -> None:
    position = Position(small(rounds=2))
    assert not position.playing and position.goes_on and position.between_rounds
    position.begin_round()
    assert position.playing and not position.between_rounds and position.round == 0
    position.finish_round()
    assert position.round == 1 and position.goes_on and position.between_rounds
    played(position)
    assert position.round == 2 and not position.goes_on
    position.end()
    assert position.phase == "done"


def test_one_that_is_asked_to_stop_plays_no_further_round() -> None:
    position = Position(small(rounds=2))
    played(position)
    position.stop()
    assert position.stopping and not position.goes_on
    position.end()
    assert position.phase == "stopped"


def test_listeners_hear_every_phase_with_the_round_that_is_played() -> None:
    position = Position(small(rounds=3))
    heard: list[tuple[int, str]] = []
    also: list[tuple[int, str]] = []
    position.listen(lambda round, phase: heard.append((round, phase)))
    position.listen(lambda round, phase: also.append((round, phase)))
    position.begin_round()
    position.enter("vote")
    position.finish_round()
    position.begin_round()
    position.finish_round()
    position.end()  # between two rounds: of the last one
    assert heard == also == [(1, "train"), (1, "vote"), (2, "train"), (2, "stopped")]


def test_nobody_goes_past_the_last_round() -> None:
    position = Position(small(rounds=8))
    position.move_to(5)
    assert position.round == 5
    position.move_to(9)
    assert position.round == 8 and not position.goes_on


def test_an_automatic_warm_up_lasts_until_it_is_opened() -> None:
    assert Position(small(warmup=3)).warmup == 3
    position = Position(small(warmup="auto"))
    assert position.warmup is None
    position.opened(4)
    assert position.warmup == 4


def test_a_checkpoint_brings_back_what_the_next_round_depends_on() -> None:
    position = Position(small(rounds=8, warmup="auto"))
    assert position.merged_at == 0
    position.opened(2)
    position.merged(4)
    notes = json.loads(json.dumps(position.notes()))  # as a file keeps them
    resumed = Position(small(rounds=8, warmup="auto"))
    resumed.restore(5, notes)
    assert (resumed.round, resumed.warmup, resumed.merged_at) == (5, 2, 4)
