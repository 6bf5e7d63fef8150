"""Class indices in whole bytes, the lowest byte first: as many bytes each as the classes need, one to four."""

import numpy as np

# numpy has integers of one, two and four bytes. An index of three is the lower part of four. Four are needed only to
# abstain from a vote on the most classes there can be.
TYPES = {1: "<u1", 2: "<u2", 3: "<u4", 4: "<u4"}


def to_bytes(indices: np.ndarray, each: int) -> bytes:
    """Indices of any shape, `each` bytes apiece."""
    whole = np.ascontiguousarray(indices, TYPES[each])
    return whole.reshape(-1, 1).view(np.uint8)[:, :each].tobytes()


def from_bytes(data: bytes, each: int) -> np.ndarray:
    """The indices [n], of the smallest unsigned type that holds them. The length has been checked."""
    if each != 3:
        return np.frombuffer(data, TYPES[each])
    whole = np.zeros((len(data) // each, 4), np.uint8)
    whole[:, :each] = np.frombuffer(data, np.uint8).reshape(-1, each)
    return whole.view(TYPES[each]).reshape(-1)
