"""Whom to wait for before the first round: a policy as a function of the time and of who is there.

A peer that is not up yet is waited for without end: start order does not matter, and only the operator knows whether it
will come. One that was there and is gone has died: it is waited for as long as for any peer that falls silent.
"""

from collections.abc import Collection

from p2p_tally.ids import NodeName

# When a node that waits first says for whom, and how often from then on.
FIRST_REMINDER_SECONDS = 2.0
REMINDER_SECONDS = 30.0
# What a node that comes to a federation at play gives the rest of its links.
LATE_SECONDS = 1.0


class RollCall:
    """The start of one node."""

    def __init__(self, now: float, patience: float | None) -> None:
        """`patience`: what one that was there and is gone is given; None: no end."""
        self.given_up: set[NodeName] = set()
        self._patience = patience
        self._reminder = now + FIRST_REMINDER_SECONDS
        self._late_until: float | None = None
        self._gone_since: dict[NodeName, float] = {}

    def goes_on(self, now: float, missing: Collection[NodeName], met: Collection[NodeName], late: bool) -> bool:
        """Whether to wait on. Of the `missing` some were `met`; `late`: others play already, this one comes to them."""
        if late and self._late_until is None:
            self._late_until = now + LATE_SECONDS
        self._gone_since = {peer: self._gone_since.get(peer, now) for peer in missing if peer in met}
        if self._patience is not None:
            self.given_up = {peer for peer, since in self._gone_since.items() if now >= since + self._patience}
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
        instants = [self._reminder]
        if self._late_until is not None:
            instants.append(self._late_until)
        if self._patience is not None:
            waiting = (since for peer, since in self._gone_since.items() if peer not in self.given_up)
            instants += [since + self._patience for since in waiting]
        return min(instants)
