"""What one node contributes to an all-reduce, and how it uses what it receives: parameters, or encoded changes.

Both work run by run. A contribution belongs to one merge. Nothing outside it changes before the merge is complete.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from p2p_tally.errors import ParameterError
from p2p_tally.learning import merging
from p2p_tally.learning.feedback import ErrorFeedback
from p2p_tally.learning.parameters import checked_vector
from p2p_tally.node.formats import format_since
from p2p_tally.node.merges.exchange import FAILED, Merged
from p2p_tally.node.merges.outer import OuterState
from p2p_tally.protocol.changes import LEVELS, ChangeFormat, fits

log = logging.getLogger(__name__)

PLAIN = ChangeFormat()
EPSILON = np.finfo(np.float32).eps

# The mean of the participants' runs, in order of name.
Mean = Callable[[Sequence[np.ndarray]], np.ndarray]


class Contribution(Protocol):
    """The contribution of one node to an all-reduce."""

    def __len__(self) -> int: ...

    def send(self, run: slice) -> bytes | memoryview:
        """A run of this node, for the peer that sums it."""
        ...

    def own(self, run: slice) -> np.ndarray:
        """A run of this node, which this node sums itself."""
        ...

    def read(self, data: bytes, count: int) -> np.ndarray:
        """Decode a run from a peer; or raise a ParameterError."""
        ...

    def reduce(self, run: slice, parts: Sequence[np.ndarray]) -> bytes | memoryview | None:
        """Average the runs of all participants, in order of name, and put the mean into the result. Returns the bytes
        to send to the others; None if the mean is not usable."""
        ...

    def take(self, run: slice, values: np.ndarray) -> None:
        """Put a mean from a peer into the result."""
        ...

    @property
    def result(self) -> np.ndarray:
        """What has been put together so far [W]."""
        ...

    def sent_at(self, places: np.ndarray, own: slice) -> np.ndarray:
        """What this node contributed in these places; `own`: the segment that it summed itself."""
        ...

    def mean_at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The means in these places, and how far encoding may have moved each; infinitely far where it left one out."""
        ...

    def close(self) -> Merged:
        """The result, when all runs are there; FAILED if it is not usable."""
        ...


class Parameters:
    """Parameters in float32. With error feedback the residual is added to them, and the new residual is zero.

    `outer`: the outer state, if it is averaged too; it follows the parameters.
    """

    def __init__(
        self,
        vector: np.ndarray,
        feedback: ErrorFeedback | None = None,
        mean: Mean = merging.mean,
        outer: np.ndarray | None = None,
    ) -> None:
        self._mean = mean
        self._parameters = len(vector)
        own = vector if feedback is None else vector + feedback.residual
        self._vector = own if outer is None else np.concatenate([own, outer])
        self._feeds_back = feedback is not None
        self._result = np.empty_like(self._vector)

    def __len__(self) -> int:
        return len(self._vector)

    def send(self, run: slice) -> memoryview:
        return as_bytes(self._vector[run])

    def own(self, run: slice) -> np.ndarray:
        return self._vector[run]

    def read(self, data: bytes, count: int) -> np.ndarray:
        return read_plain(data, count)

    def reduce(self, run: slice, parts: Sequence[np.ndarray]) -> memoryview | None:
        self._result[run] = self._mean(parts)
        if not np.isfinite(self._result[run]).all():  # NaN or an overflow: the others would refuse it
            return None
        return as_bytes(self._result[run])

    def take(self, run: slice, values: np.ndarray) -> None:
        self._result[run] = values

    @property
    def result(self) -> np.ndarray:
        return self._result

    def sent_at(self, places: np.ndarray, own: slice) -> np.ndarray:  # noqa: ARG002, it is not encoded anywhere
        sent: np.ndarray = self._vector[places]
        return sent

    def mean_at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._result[places], np.zeros(len(places), np.float32)

    def close(self) -> Merged:
        average, outer = self._result[: self._parameters], self._result[self._parameters :]
        return Merged(
            average, np.zeros_like(average) if self._feeds_back else None, outer=outer if len(outer) else None
        )


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
        self._vector, self._residual = vector, feedback.residual
        # First the change; after a run is sent, what encoding lost of that run.
        self._kept = vector - feedback.base
        self._kept += feedback.residual
        self._result = np.empty_like(vector)
        self._largest: np.float32 | None = None  # change of the result, once it is asked for

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

    @property
    def result(self) -> np.ndarray:
        return self._result

    def sent_at(self, places: np.ndarray, own: slice) -> np.ndarray:
        change = self._vector[places] - self._base[places] + self._residual[places]
        own_places = (places >= own.start) & (places < own.stop)  # what it summed itself was not encoded
        sent: np.ndarray = np.where(own_places, change, change - self._kept[places])
        return sent

    def mean_at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        moved = self._result[places] - self._base[places]
        if self._largest is None:
            self._largest = np.abs(self._result - self._base).max(initial=0.0)
        # A step of int8 is at most this part of the largest value; the sum with the base rounds too.
        step = self._largest / LEVELS + EPSILON * np.abs(self._result[places])
        left_out = (moved == 0) & bool(self._format.top_k)
        return moved, np.where(left_out, np.inf, step).astype(np.float32)

    def close(self) -> Merged:
        return Merged(self._result, self._kept) if fits(self._result) else FAILED


class Sources:
    """Makes the contributions of one node: what it sends depends on what the participants have in common.

    With `feedback`, changes since its base are sent if all participants have that base; otherwise parameters. `outer`:
    what is averaged too if participants name different ones.
    """

    def __init__(
        self, format: ChangeFormat = PLAIN, feedback: ErrorFeedback | None = None, outer: OuterState | None = None
    ) -> None:
        self._format = format
        self._feedback = feedback
        self._outer = outer

    @property
    def name(self) -> bytes:
        """For announcements: the name of the base of changes, and that of the outer state; both may be empty."""
        base = b"" if self._feedback is None else self._feedback.name
        return base if self._outer is None else base + self._outer.name

    def make(self, vector: np.ndarray, names: Sequence[bytes], mean: Mean = merging.mean) -> Contribution | None:
        """What this node contributes; None if it cannot be encoded. `names`: those of all participants. All decide the
        same, because they know the same names."""
        feedback = self._feedback
        first = 0 if feedback is None else len(feedback.name)
        outer = self._differing(names)
        if outer is not None:
            log.info("outer states differ: this merge averages them too", extra={"event": "merge-outer"})
            return Parameters(vector, feedback, mean, outer)
        if feedback is None:
            return Parameters(vector, mean=mean)
        if {name[:first] for name in names} != {feedback.name}:
            log.info("bases differ: this merge sends whole parameters", extra={"event": "merge-whole"})
            return Parameters(vector, feedback, mean)
        changes = Changes(vector, feedback, format_since(feedback.base, self._format), mean)
        return changes if changes.fits else None

    def receiver(self, vector: np.ndarray, names: Sequence[bytes]) -> Parameters:
        """Takes a result that others have computed, with these names: always as parameters."""
        return Parameters(vector, self._feedback, outer=self._differing(names))

    def _differing(self, names: Sequence[bytes]) -> np.ndarray | None:
        """The outer state, if participants name different ones."""
        first = 0 if self._feedback is None else len(self._feedback.name)
        if self._outer is None or len({name[first:] for name in names}) <= 1:
            return None
        return self._outer.vector()


def as_bytes(values: np.ndarray) -> memoryview:
    """A run [n] as float32, not copied where the machine keeps numbers in the order of the wire."""
    return values.astype("<f4", copy=False).data.cast("B")


def read_plain(data: bytes, count: int) -> np.ndarray:
    """A run of float32 parameters from a peer; or a ParameterError."""
    if len(data) % 4:
        raise ParameterError(f"{len(data)} bytes are no whole float32 parameters", reason="shape")
    return checked_vector(np.frombuffer(data, "<f4"), count)
