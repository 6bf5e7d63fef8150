"""The learner of a member that lies: it learns as any other, and only what it answers or contributes is false.

A liar hears its own false answer in its tally, as all others do. So what all peers of a mesh learn from is the same.
"""

from typing import Any, Protocol

import numpy as np
from torch import Tensor

from p2p_tally.attacks import answers, vectors
from p2p_tally.attacks.kinds import About, draw_seed, lies_of
from p2p_tally.learning.consensus import Answer
from p2p_tally.learning.learner import Learner


class Known(Protocol):
    """What a liar knows of honest members."""

    def answer(self, round: int) -> Answer:
        """The first member's for the probes of a round."""
        ...

    def contributions(self, round: int) -> np.ndarray:
        """Those of the honest members to the merge of a round [H, W]."""
        ...


class Liar(Learner):
    """A learner that lies."""

    def __init__(self, *arguments: Any, rank: int, known: Known | None, **options: Any) -> None:
        """`known`: None for a daemon, which knows only what it has received."""
        super().__init__(*arguments, **options)
        self._about_answers = lies_of(self.federation, rank, About.ANSWERS)
        self._about_parameters = lies_of(self.federation, rank, About.PARAMETERS)
        self._rank = rank
        self._known = known
        self._taken: np.ndarray | None = None  # what it takes of the next merge in place of its result
        self._merged: list[np.ndarray] = []  # the result of the last merge, if there was one

    def _draw(self, round: int) -> np.random.Generator:
        return np.random.default_rng(draw_seed(self.federation, self._rank, round))

    def answer(self, round: int, logits: Tensor) -> Answer:
        draw = self._draw(round)
        for attack in self._about_answers:
            if attack.kind.knows_others:
                assert self._known is not None, "check_attacks has refused it"
                return self._known.answer(round)
            logits = answers.LIES[attack.kind.name](logits, attack, draw)
        return super().answer(round, logits)

    def contribution(self, round: int) -> np.ndarray:
        own, draw = super().contribution(round), self._draw(round)
        self._taken = None
        for attack in self._about_parameters:
            known = self._what_is_known(round, own) if attack.kind.knows_others else own[None]
            if attack.kind.name in vectors.TAKEN:
                self._taken = vectors.TAKEN[attack.kind.name](own, known)
            own = vectors.LIES[attack.kind.name](own, known, attack, draw)
        return own

    def _what_is_known(self, round: int, own: np.ndarray) -> np.ndarray:
        if self._known is not None:
            return self._known.contributions(round)
        return np.stack([*self._merged, own])

    def merge(self, average: np.ndarray, kept: np.ndarray | None = None, since: np.ndarray | None = None) -> None:
        super().merge(average if self._taken is None else self._taken, kept, since)
        self._merged = [super().contribution(0).copy()]
