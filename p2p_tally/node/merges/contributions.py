"""What one node puts into an all-reduce and what it makes of what comes: parameters as they are, or coded changes.

Both are run by run. A contribution belongs to one merge; nothing outside it changes until that merge is complete.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from p2p_tally.errors import ParameterError
from p2p_tally.learning import merging
from p2p_tally.learning.feedback import ErrorFeedback
from p2p_tally.learning.parameters import checked_vector
from p2p_tally.node.merges.exchange import FAILED, Merged
from p2p_tally.protocol.changes import ChangeFormat, fits

PLAIN = ChangeFormat()


class Contribution(Protocol):
    """One node's part in an all-reduce."""

    def __len__(self) -> int: ...

    def send(self, run: slice) -> bytes:
        """This node's run, for the peer that sums it."""
        ...

    def own(self, run: slice) -> np.ndarray:
        """This node's run, for a sum that it makes itself."""
        ...

    def read(self, data: bytes, count: int) -> np.ndarray:
        """A run that a peer sent; or a ParameterError."""
        ...

    def reduce(self, run: slice, parts: Sequence[np.ndarray]) -> bytes | None:
        """Take the mean of all participants' runs, in order of name, for the result; what the others are to be sent.
        None where it is no mean to go on with."""
        ...

    def take(self, run: slice, values: np.ndarray) -> None:
        """Take a mean that a peer made."""
        ...

    def close(self) -> Merged:
        """The result, once every run of it is there; FAILED where it is nothing to go on with."""
        ...


class Parameters:
    """Parameters as they are, in float32. With error feedback: what was kept back goes too, and nothing is kept."""

    def __init__(self, vector: np.ndarray, feedback: ErrorFeedback | None = None) -> None:
        self._vector = vector if feedback is None else vector + feedback.residual
        self._feeds_back = feedback is not None
        self._result = np.empty_like(vector)

    def __len__(self) -> int:
        return len(self._vector)

    def send(self, run: slice) -> bytes:
        return PLAIN.encode(self._vector[run])

    def own(self, run: slice) -> np.ndarray:
        return self._vector[run]

    def read(self, data: bytes, count: int) -> np.ndarray:
        return read_plain(data, count)

    def reduce(self, run: slice, parts: Sequence[np.ndarray]) -> bytes | None:
        self._result[run] = merging.mean(parts)
        if not np.isfinite(self._result[run]).all():  # this node's own NaN, or an overflow: the others will refuse it
            return None
        return PLAIN.encode(self._result[run])

    def take(self, run: slice, values: np.ndarray) -> None:
        self._result[run] = values

    def close(self) -> Merged:
        return Merged(self._result, np.zeros_like(self._result) if self._feeds_back else None)


class Changes:
    """The change since a base that all participants share, coded.

    Whoever sums a run codes the mean and uses what the others will make of that, as they do: all end with the same
    bits. What the mean lost is n times owed by that one peer: the next sum over n gets it from there.
    """

    def __init__(self, vector: np.ndarray, feedback: ErrorFeedback, format: ChangeFormat) -> None:
        self._format = format
        self._base = feedback.base
        # The change, and run by run, as it is sent, what is kept back of it.
        self._kept = vector - feedback.base
        self._kept += feedback.residual
        self._result = np.empty_like(vector)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def fits(self) -> bool:
        """Whether this node's change can be coded at all; ask before anything is sent."""
        return fits(self._kept)

    def send(self, run: slice) -> bytes:
        data = self._format.encode(self._kept[run])
        self._kept[run] -= self._format.decode(data, run.stop - run.start)
        return data

    def own(self, run: slice) -> np.ndarray:
        change: np.ndarray = self._kept[run]  # it does not travel, so nothing is lost
        return change

    def read(self, data: bytes, count: int) -> np.ndarray:
        return self._format.decode(data, count)

    def reduce(self, run: slice, parts: Sequence[np.ndarray]) -> bytes | None:
        mean = merging.mean(parts)
        if not fits(mean):
            return None
        data = self._format.encode(mean)
        restored = self.read(data, len(mean))
        self.take(run, restored)
        mean -= restored
        mean *= np.float32(len(parts))
        self._kept[run] = mean
        return data

    def take(self, run: slice, values: np.ndarray) -> None:
        np.add(self._base[run], values, out=self._result[run])

    def close(self) -> Merged:
        return Merged(self._result, self._kept) if fits(self._result) else FAILED


def read_plain(data: bytes, count: int) -> np.ndarray:
    """A run of float32 parameters from a peer; or a ParameterError."""
    if len(data) % 4:
        raise ParameterError(f"{len(data)} bytes are no whole float32 parameters", reason="shape")
    return checked_vector(np.frombuffer(data, "<f4"), count)
