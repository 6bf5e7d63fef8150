"""Whom to wait for before the first round: a policy as a function of the time and of who is there.

A peer that is not up yet is waited for without end: start order does not matter, and only the operator knows whether it
will come. One that was there and is gone has died: it is waited for as long as for any peer that falls silent.
"""

from collections.abc import Collection, Mapping

from p2p_tally.ids import NodeName

# When a node that waits first says for whom, and how often from then on.
FIRST_REMINDER_SECONDS = 2.0
REMINDER_SECONDS = 30.0
# What a node that comes to a federation at play gives the rest of its links.
LATE_SECONDS = 1.0


class RollCall:
    """The start of one node."""

    def __init__(self, now: float) -> None:
        self.given_up: set[NodeName] = set()
        self._reminder = now + FIRST_REMINDER_SECONDS
        self._late_until: float | None = None
        self._missed_since: dict[NodeName, float] = {}
        self._until: dict[NodeName, float] = {}

    def goes_on(
        self, now: float, missing: Collection[NodeName], patience: Mapping[NodeName, float], late: bool
    ) -> bool:
        """Whether to wait on. `patience`: the seconds that those who were there are given from when they are missed.

        `late`: others play already, and this node comes to them.
        """
        if not late:
            self._late_until = None
        elif self._late_until is None:
            self._late_until = now + LATE_SECONDS
        self._missed_since = {peer: self._missed_since.get(peer, now) for peer in missing if peer in patience}
        self._until = {peer: since + patience[peer] for peer, since in self._missed_since.items()}
        self.given_up = {peer for peer, end in self._until.items() if now >= end}
        in_time = self._late_until is None or now < self._late_until
        return in_time and not self.given_up.issuperset(missing)

    def is_time_to_say(self, now: float) -> bool:
        """Whether to tell the operator for whom this node waits."""
        if now < self._reminder:
            return False
        self._reminder = now + REMINDER_SECONDS
        return True

    @property
    def next_look(self) -> float:
        """When to look again, if nothing changes before."""
        instants = [end for peer, end in self._until.items() if peer not in self.given_up]
        if self._late_until is not None:
            instants.append(self._late_until)
        return min([self._reminder, *instants])
