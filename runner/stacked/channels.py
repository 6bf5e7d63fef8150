"""The channels of all stacked peers in one round, as arrays: what `learning/schedule.py` says of one peer.

The rules are those of the schedule. Knows no answer and no graph. N peers.
"""

from dataclasses import dataclass, replace

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.learning.schedule import channel, quorum, waits_for_half, worth

# When a channel opened that has not: an automatic warm-up lasts.
NOT_YET = -1


@dataclass(frozen=True)
class Channels:
    """The two weights of each peer's loss, [N] each; both 0 where its channel is closed."""

    label: np.ndarray
    consensus: np.ndarray

    @classmethod
    def of(cls, federation: Federation, r: int, opened: np.ndarray, there: np.ndarray) -> "Channels":
        """`opened` [N]: after which round each peer's channel is open. `there` [N]: who takes part."""
        label, consensus = np.zeros(len(opened)), np.zeros(len(opened))
        for after in np.unique(opened).tolist():
            known = channel(federation, r, None if after == NOT_YET else after)
            own = there & (opened == after)
            label[own], consensus[own] = known.label, known.consensus
        return cls(label, consensus)

    @classmethod
    def closed(cls, nodes: int) -> "Channels":
        """Those of peers that have nothing to learn from."""
        return cls(np.zeros(nodes), np.zeros(nodes))

    @property
    def trains(self) -> np.ndarray:
        """Who learns from probes [N]."""
        learns: np.ndarray = (self.label > 0) | (self.consensus > 0)
        return learns

    @property
    def speaks(self) -> np.ndarray:
        """Whose loss ballots can change [N]."""
        speaks: np.ndarray = self.consensus > 0
        return speaks

    def with_quorum(self, votes: np.ndarray, neighbourhoods: np.ndarray) -> "Channels":
        """With so many votes [N] of closed neighbourhoods [N]: below the quorum a peer learns from labels alone."""
        sizes, which = np.unique(neighbourhoods, return_inverse=True)
        least = np.array([quorum(size) for size in sizes.tolist()])[which]
        return replace(self, consensus=np.where(votes < least, 0.0, self.consensus))

    def with_agreement(self, kappa: np.ndarray) -> "Channels":
        """Where votes that agree so far beyond chance [N] tell what they are worth."""
        return replace(self, consensus=self.consensus * worth(kappa))


def waiting(federation: Federation, opened: np.ndarray) -> np.ndarray:
    """Whose automatic warm-up still lasts [N]."""
    lasts: np.ndarray = (opened == NOT_YET) & waits_for_half(federation, None)
    return lasts
