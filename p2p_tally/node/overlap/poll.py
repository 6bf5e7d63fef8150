"""Polls that end in the round after their own: with --overlap a node learns from the votes of the round before.

It sends its votes, and then takes those of the round before, which came while it computed. A poll that a node cannot
finish is dropped: it has moved to a later round, and has no answer of its own for the one before.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from p2p_tally.learning.consensus import Answer
from p2p_tally.learning.late import Late, LateVotes
from p2p_tally.learning.overlap import uses_votes
from p2p_tally.learning.schedule import CLOSED, Channel, channel
from p2p_tally.node.poll import Heard, Poll


class Sent(NamedTuple):
    """An answer that this node has given, and has not heard the others' for."""

    round: int
    own: Answer
    channel: Channel


class LatePoll(Poll):
    """One node's polls, each a round late."""

    def __init__(self, *arguments: Any, late: Late, warmup: Callable[[], int | None]) -> None:
        """`late`: keeps a poll that is over until its turn. `warmup`: after which round the channel is open."""
        super().__init__(*arguments)
        self._late = late
        self._warmup = warmup
        self._sent: Sent | None = None

    async def hear(self, round: int, own: Answer, now: Channel) -> Heard:
        """Send this node's answer of a round, and take the answers of the round before."""
        used = uses_votes(self._federation, round)
        if now.speaks and used:
            await self._say(round, own)
        await self.settle()
        self._step.leave_if_others_left(round)
        before, self._sent = self._late.take_votes(), Sent(round, own, now) if used else None
        if before is None or before.round != round - 1:
            return Heard(round, {}, CLOSED, None)
        then = channel(self._federation, before.round, self._warmup())
        return self._weighed(before.round, before.answers, then)  # type: ignore[arg-type]

    async def settle(self) -> None:
        """Wait for the answers to what this node has sent. They are used in the next round."""
        sent, self._sent = self._sent, None
        if sent is not None:
            answers = await self._collect(*sent)
            self._late.keep_votes(LateVotes(sent.round, {str(name): answer for name, answer in answers.items()}))
