"""Whether to wait for missing neighbours before the first round. The caller passes in the time and who is missing.

A peer that has not been there yet is waited for without a limit: the order in which nodes start does not matter, and
only the operator knows whether the peer will come. A peer that was there and has gone has probably died: it gets the
usual timeout.
"""

from collections.abc import Collection, Mapping

from p2p_tally.ids import NodeName

# When a waiting node first logs for whom it waits, and how often after that.
FIRST_REMINDER_SECONDS = 2.0
REMINDER_SECONDS = 30.0
# How long a node that joins a running federation waits for the rest of its links.
LATE_SECONDS = 1.0


class StartWait:
    """The wait of one node before its first round."""

    def __init__(self, now: float) -> None:
        self.given_up: set[NodeName] = set()
        self._reminder = now + FIRST_REMINDER_SECONDS
        self._late_until: float | None = None
        self._missed_since: dict[NodeName, float] = {}
        self._until: dict[NodeName, float] = {}

    def goes_on(
        self, now: float, missing: Collection[NodeName], timeouts: Mapping[NodeName, float], late: bool
    ) -> bool:
        """Whether to keep waiting.

        `timeouts`: for each peer that was there, the seconds to wait for it from when it is missed. `late`: the others
        play already, and this node joins them.
        """
        if not late:
            self._late_until = None
        elif self._late_until is None:
            self._late_until = now + LATE_SECONDS
        self._missed_since = {peer: self._missed_since.get(peer, now) for peer in missing if peer in timeouts}
        self._until = {peer: since + timeouts[peer] for peer, since in self._missed_since.items()}
        self.given_up = {peer for peer, end in self._until.items() if now >= end}
        in_time = self._late_until is None or now < self._late_until
        return in_time and not self.given_up.issuperset(missing)

    def reminder_is_due(self, now: float) -> bool:
        """Whether to tell the operator now for whom this node waits. If so, the next reminder is scheduled."""
        if now < self._reminder:
            return False
        self._reminder = now + REMINDER_SECONDS
        return True

    @property
    def next_check(self) -> float:
        """When to check again, if nothing changes before."""
        instants = [end for peer, end in self._until.items() if peer not in self.given_up]
        if self._late_until is not None:
            instants.append(self._late_until)
        return min([self._reminder, *instants])
