"""Codes: what a merge sends in place of float32 values, tensor by tensor. Pure functions of numpy arrays; no torch.

A code says beforehand how long a tensor of a shape becomes, so byte formulas hold to the byte. Its reader refuses bytes
that its writer cannot have made. Whether values are finite and of a sane size is checked for all codes by who merges.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.errors import ParameterError

Shape = tuple[int, ...]
# The shapes of a model's trainable tensors, in the order of its vector of W parameters.
Layout = tuple[Shape, ...]

TYPE = "<f4"


@dataclass(frozen=True)
class Code:
    """How a tensor is written and read. What `read` gives is what `write` was given, as far as the code keeps it."""

    size: Callable[[Shape, Federation], int]  # bytes
    write: Callable[[np.ndarray, Federation], bytes]  # a finite tensor of float32
    read: Callable[[bytes, Shape, Federation], np.ndarray]  # of the right length; or a ParameterError


def count(shape: Shape) -> int:
    """Values of a tensor."""
    return int(np.prod(shape, dtype=np.int64))


def size_of(code: Code, layout: Layout, vectors: int, federation: Federation) -> int:
    """Bytes of so many vectors [V W]."""
    return vectors * sum(code.size(shape, federation) for shape in layout)


def encode(code: Code, vector: np.ndarray, layout: Layout, federation: Federation) -> bytes:
    """Vectors one after the other [V W], all finite."""
    return b"".join(
        code.write(vector[start : start + count(shape)].reshape(shape), federation)
        for start, shape in _tensors(len(vector), layout)
    )


def decode(code: Code, data: bytes, length: int, layout: Layout, federation: Federation) -> np.ndarray:
    """What was sent [V W], of this length; or a ParameterError."""
    wanted = size_of(code, layout, length // sum(map(count, layout)), federation)
    if len(data) != wanted:
        raise ParameterError(f"{len(data)} bytes instead of {wanted} for {length} parameters", reason="shape")
    vector = np.empty(length, np.float32)
    at = 0
    for start, shape in _tensors(length, layout):
        end = at + code.size(shape, federation)
        vector[start : start + count(shape)] = code.read(data[at:end], shape, federation).ravel()
        at = end
    return vector


def _tensors(length: int, layout: Layout) -> Iterator[tuple[int, Shape]]:
    """Where each tensor of so many values begins, and its shape."""
    start = 0
    for shape in cycle(layout):
        if start >= length:
            return
        yield start, shape
        start += count(shape)


# --- for codes that write some tensors as they are


def write_plain(values: np.ndarray) -> bytes:
    return values.astype(TYPE, copy=False).tobytes()


def read_plain(data: bytes, shape: Shape) -> np.ndarray:
    return np.frombuffer(data, TYPE).astype(np.float32, copy=False).reshape(shape)
