"""Lies about who is sent what: a function from a message and its receiver to what is sent in its place.

Votes are changed as `flip` does, parameters change their sign, and of an announcement the first member is left out.
Changes of coded merges are sent as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from p2p_tally.attacks.kinds import Attack
from p2p_tally.protocol.ballots import Answer, BallotFormat
from p2p_tally.protocol.messages import Announce, Message, Shard, Stage, Vote

PARAMETERS = (Stage.VECTOR, Stage.SCATTER, Stage.GATHER)

# The labels of a round's probes [P], or None.
Labels = Callable[[int], np.ndarray | None]


class FalseMessages:
    """What one liar sends."""

    def __init__(self, about: Sequence[Attack], ballots: BallotFormat, labels: Labels, plain_merges: bool) -> None:
        names = [attack.kind.name for attack in about]
        self._withheld = {Stage[one.argument.upper()] for one in about if one.kind.name == "withhold"}
        self._equivocates = "equivocate" in names
        self._ballots = ballots
        self._labels = labels
        self._plain_merges = plain_merges

    def said(self, rank: int, message: Message) -> Message | None:
        """What the peer of this rank is sent in place of a message; None: nothing. Even ranks are told the truth."""
        if message.stage in self._withheld:
            return None
        return self._other(message) if self._equivocates and rank % 2 else message

    def _other(self, message: Message) -> Message:
        match message:
            case Vote():
                labels = self._labels(message.round) if self._ballots.needs_labels else None
                answer = _next_class(self._ballots.decode(message.ballot, labels), self._ballots)
                return replace(message, ballot=self._ballots.encode(answer, labels))
            case Announce() if message.present:
                first = message.present[0] & 0x7F
                return replace(message, present=bytes([first]) + message.present[1:])
            case Shard() if message.stage not in PARAMETERS:  # what members of a robust merge say about it
                return replace(message, data=bytes(byte ^ 0xFF for byte in message.data))
            case Shard() if self._plain_merges:
                return replace(message, data=(-np.frombuffer(message.data, "<f4")).tobytes())
            case _:
                return message


def _next_class(answer: Answer, ballots: BallotFormat) -> Answer:
    if isinstance(answer, tuple):
        return (answer[0] + 1) % ballots.classes, answer[1]
    if answer.ndim == 1:
        return (answer + 1) % ballots.symbols
    return np.roll(answer, 1, 0 if ballots.form.endswith("by-class") else -1)  # a table has a row for each class
