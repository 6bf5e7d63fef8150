"""What one node contributes to an all-reduce, and how it uses what it receives: parameters, or encoded changes.

Both work run by run. A contribution belongs to one merge. Nothing outside it changes before the merge is complete.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from p2p_tally.errors import ParameterError
from p2p_tally.learning import merging
from p2p_tally.learning.feedback import ErrorFeedback
from p2p_tally.learning.parameters import checked_vector
from p2p_tally.node.merges.exchange import FAILED, Merged
from p2p_tally.protocol.changes import ChangeFormat, fits

PLAIN = ChangeFormat()

# The mean of the participants' runs, in order of name.
Mean = Callable[[Sequence[np.ndarray]], np.ndarray]


class Contribution(Protocol):
    """The contribution of one node to an all-reduce."""

    def __len__(self) -> int: ...

    def send(self, run: slice) -> bytes:
        """A run of this node, for the peer that sums it."""
        ...

    def own(self, run: slice) -> np.ndarray:
        """A run of this node, which this node sums itself."""
        ...

    def read(self, data: bytes, count: int) -> np.ndarray:
        """Decode a run from a peer; or raise a ParameterError."""
        ...

    def reduce(self, run: slice, parts: Sequence[np.ndarray]) -> bytes | None:
        """Average the runs of all participants, in order of name, and put the mean into the result. Returns the bytes
        to send to the others; None if the mean is not usable."""
        ...

    def take(self, run: slice, values: np.ndarray) -> None:
        """Put a mean from a peer into the result."""
        ...

    def close(self) -> Merged:
        """The result, when all runs are there; FAILED if it is not usable."""
        ...


class Parameters:
    """Parameters in float32. With error feedback the residual is added to them, and the new residual is zero."""

    def __init__(self, vector: np.ndarray, feedback: ErrorFeedback | None = None, mean: Mean = merging.mean) -> None:
        self._mean = mean
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
        self._result[run] = self._mean(parts)
        if not np.isfinite(self._result[run]).all():  # NaN or an overflow: the others would refuse it
            return None
        return PLAIN.encode(self._result[run])

    def take(self, run: slice, values: np.ndarray) -> None:
        self._result[run] = values

    def close(self) -> Merged:
        return Merged(self._result, np.zeros_like(self._result) if self._feeds_back else None)


class Changes:
    """The change since a base that all participants share, encoded.

    The node that sums a run encodes the mean, and uses the decoded mean itself: all end with the same bits. It keeps n
    times the rounding error of the mean as its residual, because the next sum is divided by n again.
    """

    def __init__(
        self, vector: np.ndarray, feedback: ErrorFeedback, format: ChangeFormat, mean: Mean = merging.mean
    ) -> None:
        self._mean = mean
        self._format = format
        self._base = feedback.base
        # First the change; after a run is sent, what encoding lost of that run.
        self._kept = vector - feedback.base
        self._kept += feedback.residual
        self._result = np.empty_like(vector)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def fits(self) -> bool:
        """Whether this node's change can be encoded; checked before anything is sent."""
        return fits(self._kept)

    def send(self, run: slice) -> bytes:
        data = self._format.encode(self._kept[run])
        self._kept[run] -= self._format.decode(data, run.stop - run.start)
        return data

    def own(self, run: slice) -> np.ndarray:
        change: np.ndarray = self._kept[run]  # it is not sent, so nothing is lost
        return change

    def read(self, data: bytes, count: int) -> np.ndarray:
        return self._format.decode(data, count)

    def reduce(self, run: slice, parts: Sequence[np.ndarray]) -> bytes | None:
        mean = self._mean(parts)
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
