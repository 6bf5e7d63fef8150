"""What the rounds of stacked peers cost, for the lines of their run: bytes by stage, and the messages for the clock."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.learning.exchanges.code import Layout
from p2p_tally.node.flows import flows
from p2p_tally.node.traffic import Traffic, VotesSent, totals
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.runner.clock.clock import Played
from p2p_tally.runner.clock.messages import table_of
from p2p_tally.runner.runs.round_lines import RoundLog, Survey
from p2p_tally.topologies import Topology


class Sent(NamedTuple):
    """What the peers sent in a round."""

    round: int
    said: Sequence[VotesSent]
    merge: ChangeFormat | None  # the format of its merge; None without one
    handed: Mapping[int, tuple[int | None, int]]  # what each donor told a newcomer of itself


class Record:
    """Of one federation."""

    def __init__(
        self, federation: Federation, topology: Topology, ballots: BallotFormat, parameters: int, layout: Layout
    ) -> None:
        self._traffic = Traffic(federation, topology, ballots, parameters, layout)

    def book(
        self, sent: Sent, there: np.ndarray, seconds: Mapping[str, float], lines: RoundLog | None
    ) -> Callable[[Survey | None, bool], None]:
        """Count what those who are `there` [N] sent, and tell the clock. What is returned ends the round: with its
        survey, if it has one, and whether peers merged. Seconds may be added until then. Without lines: nothing."""
        if lines is None:
            return lambda *_: None
        r, said, merge, handed = sent
        messages = flows(self._traffic, r, said, merge, handed.__getitem__)
        lines.clock.play(r, lambda: table_of(messages), Played.together(there, seconds))
        counted = totals(self._traffic.round(r, said, merge, handed.__getitem__))

        def end(survey: Survey | None, merged: bool) -> None:
            lines.book(counted, seconds)
            if survey is not None:
                lines.write(r, survey, merged)

        return end
