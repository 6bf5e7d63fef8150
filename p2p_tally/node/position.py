"""Where a node is in its run: the round and its phase, when the channel opened, when it last merged."""

import logging
from collections.abc import Callable
from typing import Any

from p2p_tally.config import Federation
from p2p_tally.learning.schedule import missed_a_merge

log = logging.getLogger(__name__)

# Called with the round and the phase that begins.
Listener = Callable[[int, str], None]

WAITING = "waiting"  # the phase before the first round
PAUSED = "paused"  # between two rounds: too few members are there


class Position:
    """The position of one node in its run. The node's own loop changes it; all others only read it."""

    def __init__(self, federation: Federation, last: int | None = None) -> None:
        """`last`: the last round that this node plays, if it leaves before the end."""
        self.rounds = federation.rounds
        self._federation = federation
        self.last = federation.rounds if last is None else last
        self.round = 0  # the last round finished
        self.phase = WAITING
        self.stopping = False  # asked to stop after this round
        self.between_rounds = True  # the next round has not been started
        # The round after which the channel opens; None during an automatic warm-up.
        self.warmup = federation.warmup if isinstance(federation.warmup, int) else None
        self.merged_at = 0  # the last round in which this node merged with others, or tried to
        self.apart = False  # others may have another outer state: they merged without this node, or it without them
        self._listeners: list[Listener] = []
        self._when_stopped: list[Callable[[], None]] = []

    def listen(self, listener: Listener) -> None:
        """Call this function whenever a phase begins."""
        self._listeners.append(listener)

    @property
    def playing(self) -> bool:
        return self.phase != WAITING

    @property
    def goes_on(self) -> bool:
        return self.round < self.last and not self.stopping

    def enter(self, phase: str) -> None:
        self.phase = phase
        played = self.round if self.between_rounds else self.round + 1
        for listener in self._listeners:
            listener(played, phase)

    def begin_round(self) -> None:
        self.between_rounds = False
        self.enter("train")

    def finish_round(self) -> None:
        self.round += 1
        self.between_rounds = True

    def move_to(self, round: int) -> None:
        """Count this round as the last one finished."""
        before, self.round = self.round, min(round, self.rounds)
        if self._federation.merge_every and missed_a_merge(self._federation, before, self.round):
            self.apart = True
            log.info("the others may have merged meanwhile", extra={"event": "merge-missed"})

    def opened(self, round: int) -> None:
        """The automatic warm-up ends with this round."""
        self.warmup = round

    def merged(self, round: int) -> None:
        self.merged_at = round

    def keeps_apart(self, apart: bool) -> None:
        self.apart = apart

    def plays_until(self, last: int) -> None:
        """The members have changed: this is the last round that this node plays."""
        self.last = min(last, self.rounds)

    def wait(self) -> None:
        """This node does not take part in the next round. It waits as before its first round."""
        self.enter(WAITING)

    def take_over(self, round: int, warmup: int | None, merged_at: int) -> None:
        """Go on as a peer that has finished this round."""
        self.round = min(max(self.round, round), self.rounds)
        self.warmup, self.merged_at, self.apart = warmup, merged_at, False

    def when_stopped(self, call: Callable[[], None]) -> None:
        """Call this function when this node is asked to stop."""
        self._when_stopped.append(call)

    def stop(self) -> None:
        self.stopping = True
        for call in self._when_stopped:
            call()

    def end(self) -> None:
        self.enter("done" if self.round >= self.last else "stopped")

    # --- for checkpoints

    def notes(self) -> dict[str, Any]:
        """What the next round depends on, besides the learner's state and the round."""
        notes = {"warmup": self.warmup, "merged_at": self.merged_at}
        return {**notes, "apart": True} if self.apart else notes

    def restore(self, round: int, notes: dict[str, Any]) -> None:
        self.round = min(round, self.rounds)
        if self.warmup is None:  # only an automatic warm-up is not known from the options
            self.warmup = notes["warmup"]
        self.merged_at = notes["merged_at"]
        self.apart = notes.get("apart", False)
