"""Liars of a simulation wait for what they know."""

import asyncio

import numpy as np

from p2p_tally.attacks.board import Board
from p2p_tally.ids import NodeName

A, B, LIAR = map(NodeName, "abc")


def contribution(round: int) -> np.ndarray:
    return np.full(2, round, np.float32)


async def test_a_liar_knows_what_all_honest_members_contribute() -> None:
    board = Board([A, B])

    def lie(round: int) -> np.ndarray:
        return board.contributions(round)

    lie.__name__ = "contribution"
    waiting = asyncio.create_task(board.compute(LIAR)(lie, 7))
    await board.compute(A)(contribution, 7)
    await asyncio.sleep(0)
    assert not waiting.done()
    await board.compute(B)(contribution, 7)
    assert (await waiting).tolist() == [[7, 7], [7, 7]]


async def test_other_work_does_not_wait() -> None:
    assert await Board([A]).compute(LIAR)(max, 1, 2) == 2
