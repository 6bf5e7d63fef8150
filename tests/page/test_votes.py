"""Votes of a round as the page shows them."""

import base64

import numpy as np
import pytest

from p2p_tally.page.votes import (
    COMPARED,
    KEPT_ROUNDS,
    SHOWN,
    TEXT_LENGTH,
    WITH_PICTURES,
    VoteRecords,
    text_view,
    view_of,
    vote_record,
)


@pytest.mark.parametrize(
    ("shape", "size"),
    [((64,), (8, 8, 1)), ((28, 20), (20, 28, 1)), ((1, 8, 8), (8, 8, 1)), ((3, 32, 16), (16, 32, 3))],
)
def test_pictures(shape: tuple[int, ...], size: tuple[int, int, int]) -> None:
    view = view_of(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    assert view is not None
    assert (view["width"], view["height"], view["channels"]) == size
    pixels = base64.b64decode(view["pixels"])
    assert len(pixels) == np.prod(size)
    assert (min(pixels), max(pixels)) == (0, 255)


def test_channels_come_last_in_the_bytes() -> None:
    image = np.zeros((3, 4, 4), np.uint8)
    image[1] = 7
    view = view_of(image)
    assert view is not None
    assert base64.b64decode(view["pixels"])[:6] == bytes([0, 7, 0, 0, 7, 0])


def test_a_large_picture_is_shown_smaller() -> None:
    view = view_of(np.zeros((3, 224, 100), np.uint8))
    assert view is not None
    assert (view["width"], view["height"]) == (25, 56)


@pytest.mark.parametrize("shape", [(7,), (2, 3, 4), (1, 2, 3, 4), (9,)])
def test_what_is_no_picture(shape: tuple[int, ...]) -> None:
    assert view_of(np.zeros(shape)) is None


def test_values_that_are_not_finite_do_no_harm() -> None:
    view = view_of(np.array([np.nan, np.inf, -np.inf, 1.0] * 4, np.float32))
    assert view is not None
    assert set(base64.b64decode(view["pixels"])) == {0, 255}


def test_of_a_long_text_the_end_is_shown() -> None:
    assert text_view("short") == {"text": "short"}
    assert text_view("a" * 500 + "end")["text"] == "…" + "a" * (TEXT_LENGTH - 3) + "end"


def test_a_record_is_bounded() -> None:
    record = vote_record(3, {"a": np.arange(500)}, np.arange(500), [None] * 50, 500)
    assert (len(record["votes"]["a"]), len(record["labels"]), len(record["views"])) == (COMPARED, COMPARED, SHOWN)


def test_a_vote_that_is_left_out_is_none() -> None:
    assert vote_record(1, {"a": np.array([0, 3, 2])}, None, [], 3)["votes"] == {"a": [0, -1, 2]}


def record(round: int, **votes: list[int]) -> dict[str, object]:
    return vote_record(round, {name: np.array(cast) for name, cast in votes.items()}, None, [{"text": "probe"}], 10)


def test_records_of_one_round_are_joined() -> None:
    records = VoteRecords()
    assert records.add(1, record(4, a=[1], b=[2]))
    assert records.add(2, record(4, b=[2], c=[3]))
    assert not records.add(3, record(4, a=[1]))
    [joined] = records.since(0)
    assert joined["votes"] == {"a": [1], "b": [2], "c": [3]}
    assert records.since(1) == [joined] and records.since(2) == []


def test_of_its_own_vote_a_node_knows_best() -> None:
    records = VoteRecords()
    records.add(1, record(4, a=[1], b=[9]), "a")
    assert records.add(2, record(4, a=[8], b=[2]), "b")
    [joined] = records.since(0)
    assert joined["votes"] == {"a": [1], "b": [2]}
    assert not records.add(3, record(4, a=[7], b=[7]), "c")


def test_only_the_newest_have_pictures_and_old_ones_go() -> None:
    records = VoteRecords()
    for round in range(1, 100):
        records.add(round, record(round, a=[round % 3]))
    kept = records.since(0)
    assert [one["round"] for one in kept] == list(range(100 - KEPT_ROUNDS, 100))
    assert [bool(one["views"]) for one in kept] == [False] * (KEPT_ROUNDS - WITH_PICTURES) + [True] * WITH_PICTURES


def test_a_run_that_goes_back_begins_anew() -> None:
    records = VoteRecords()
    records.add(1, record(90, a=[1]))
    records.add(2, record(10, a=[1]))
    assert [one["round"] for one in records.since(0)] == [10]
