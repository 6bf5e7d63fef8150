"""Where a node is in its run: the round, the phase of it, when its channel opened, when it merged last."""

from collections.abc import Callable
from typing import Any

from p2p_tally.config import Federation

# Called with the round that is played and the phase of it that begins.
Listener = Callable[[int, str], None]

WAITING = "waiting"  # the phase before the first round


class Position:
    """One node's place in its run. Its own round loop moves it; everybody else looks."""

    def __init__(self, federation: Federation) -> None:
        self.rounds = federation.rounds
        self.round = 0  # the last one finished
        self.phase = WAITING
        self.stopping = False  # asked to leave in good order
        self.between_rounds = True  # nothing of the next round has been done yet
        # The round after which the channel opens; None while an automatic warm-up lasts.
        self.warmup = federation.warmup if isinstance(federation.warmup, int) else None
        self.merged_at = 0  # the last round in which this node merged with others, or tried to
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """From now on call this as each phase begins."""
        self._listeners.append(listener)

    @property
    def playing(self) -> bool:
        return self.phase != WAITING

    @property
    def goes_on(self) -> bool:
        return self.round < self.rounds and not self.stopping

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
        """Count this round as the last one finished, whatever was played of it."""
        self.round = min(round, self.rounds)

    def opened(self, round: int) -> None:
        """The automatic warm-up is over after this round."""
        self.warmup = round

    def merged(self, round: int) -> None:
        self.merged_at = round

    def stop(self) -> None:
        self.stopping = True

    def end(self) -> None:
        self.enter("done" if self.round >= self.rounds else "stopped")

    # --- for checkpoints

    def notes(self) -> dict[str, Any]:
        """What the next round depends on besides the learner's state and the round itself."""
        return {"warmup": self.warmup, "merged_at": self.merged_at}

    def restore(self, round: int, notes: dict[str, Any]) -> None:
        self.move_to(round)
        self.warmup, self.merged_at = notes["warmup"], notes["merged_at"]
