"""The lies of stacked peers: rows of what all answer and contribute, replaced by the functions of `attacks`.

What each liar's own model learns from stays as it is, as in a node: only what the others get is replaced.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from p2p_tally.attacks import answers, vectors
from p2p_tally.attacks.kinds import About, Attack, draw_seed, liars, lies_of
from p2p_tally.config import Federation
from p2p_tally.runner.stacked.block import Block


class StackedLies:
    """Those of all peers of a federation."""

    def __init__(self, federation: Federation, blocks: Sequence[Block]) -> None:
        nodes = federation.nodes
        self._federation = federation
        self._places = {
            rank: (number, row) for number, block in enumerate(blocks) for row, rank in enumerate(block.ranks)
        }
        self._honest = nodes - liars(federation)
        self._taken: dict[int, Tensor] = {}  # by rank, what some take of a merge in place of its result
        self._about = {about: self._lies(about) for about in (About.ANSWERS, About.PARAMETERS)}

    def _lies(self, about: About) -> dict[int, list[Attack]]:
        """By rank."""
        found = {rank: lies_of(self._federation, rank, about) for rank in range(self._federation.nodes)}
        return {rank: lies for rank, lies in found.items() if lies}

    def _draw(self, rank: int, round: int) -> np.random.Generator:
        return np.random.default_rng(draw_seed(self._federation, rank, round))

    def answered(self, round: int, logits: list[Tensor]) -> list[Tensor]:
        """Block by block, the logits [n, C, P] that peers answer by."""
        about = self._about[About.ANSWERS]
        if not about:
            return logits
        number, row = self._places[0]
        first = logits[number][row]
        said = [part.clone() for part in logits]
        for rank, attacks in about.items():
            number, row = self._places[rank]
            own, draw = logits[number][row].mT, self._draw(rank, round)  # [P, C]
            for attack in attacks:
                own = first.mT if attack.kind.knows_others else answers.LIES[attack.kind.name](own, attack, draw)
            said[number][row] = own.mT
        return said

    def contributed(self, round: int, parameters: Tensor) -> Tensor:
        """The rows [N, W] that peers contribute to the merge of a round."""
        about = self._about[About.PARAMETERS]
        if not about:
            return parameters
        said = parameters.clone()
        known = parameters[: self._honest].cpu().numpy()
        self._taken.clear()
        for rank, attacks in about.items():
            own, draw = parameters[rank].cpu().numpy(), self._draw(rank, round)
            for attack in attacks:
                if attack.kind.name in vectors.TAKEN:
                    self._taken[rank] = torch.from_numpy(vectors.TAKEN[attack.kind.name](own, known))
                own = vectors.LIES[attack.kind.name](own, known, attack, draw)
            said[rank] = torch.from_numpy(own).to(parameters.device)
        return said

    def taken(self, average: Tensor) -> Tensor:
        """What each peer takes of a merge that gave this [N, W], or [1, W] for all."""
        if not self._taken:
            return average
        rows = average.expand(self._federation.nodes, -1).clone()
        for rank, own in self._taken.items():
            rows[rank] = own[: rows.shape[1]].to(rows.device)  # without what is contributed behind the parameters
        return rows
