"""Clustered weights: of each tensor K centroids travel, and which of them is nearest to each value.

After Han, Mao and Dally, "Deep Compression", ICLR 2016, section 3 (weight sharing by k-means); its text was not at
hand. K is --clusters. Centroids are float32 and ascend, indices have ceil(log2 K) bits each. A tensor that this would
not make shorter, such as a small bias, travels as it is.

The clusters are those of one dimension: values are sorted once, and a mean is a difference of two sums. All of it is in
float64 and in a fixed order, so the same tensor gives the same bytes everywhere. A tensor of at most K different values
arrives as it was sent: coding what was coded changes nothing.
"""

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.errors import ParameterError
from p2p_tally.learning.exchanges.code import TYPE, Code, Shape, count, read_plain, write_plain

# Means that are taken anew at most: of sorted values one costs K searches. Far-off values are reached slowly.
PASSES = 100


def width(clusters: int) -> int:
    """Bits of an index."""
    return (clusters - 1).bit_length()


def size(shape: Shape, federation: Federation) -> int:
    return min(_coded_size(shape, federation), 4 * count(shape))


def write(tensor: np.ndarray, federation: Federation) -> bytes:
    values = tensor.ravel()
    if not _is_coded(tensor.shape, federation):
        return write_plain(values)
    centroids = centroids_of(values, federation.clusters)
    bits = np.unpackbits(nearest(values, centroids)[:, None], axis=1)[:, 8 - width(federation.clusters) :]
    return centroids.astype(TYPE, copy=False).tobytes() + np.packbits(bits).tobytes()


def read(data: bytes, shape: Shape, federation: Federation) -> np.ndarray:
    if not _is_coded(shape, federation):
        return read_plain(data, shape)
    clusters, values, bits = federation.clusters, count(shape), width(federation.clusters)
    centroids = np.frombuffer(data, TYPE, clusters).astype(np.float32, copy=False)
    if not (centroids[1:] >= centroids[:-1]).all():  # NaN is neither
        raise ParameterError("centroids that do not ascend", reason="centroids")
    flags = np.unpackbits(np.frombuffer(data, np.uint8, offset=4 * clusters))
    if flags[values * bits :].any():
        raise ParameterError("padding that is not zero", reason="centroids")
    padded = np.zeros((values, 8), np.uint8)
    padded[:, 8 - bits :] = flags[: values * bits].reshape(values, bits)
    indices = np.packbits(padded)
    if int(indices.max()) >= clusters:
        raise ParameterError(f"cluster {int(indices.max())} of {clusters}", reason="centroids")
    tensor: np.ndarray = centroids[indices].reshape(shape)
    return tensor


CLUSTERED = Code(size, write, read)


def centroids_of(values: np.ndarray, clusters: int) -> np.ndarray:
    """K centroids [K] of values [n], ascending; where fewer values are different, those, and the last one repeated."""
    ordered = np.sort(values).astype(np.float64)
    different = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
    if len(different) <= clusters:
        return np.pad(different, (0, clusters - len(different)), mode="edge").astype(np.float32)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    ends = np.arange(clusters + 1) * len(ordered) // clusters  # slices of as many values each
    centroids = np.diff(sums[ends]) / np.diff(ends)
    for _ in range(PASSES):
        before, inner = ends, np.searchsorted(ordered, _middles(centroids), side="right")
        ends = np.concatenate([[0], inner, [len(ordered)]])
        if (ends == before).all():
            break
        held = np.diff(ends)
        centroids = np.where(held > 0, np.diff(sums[ends]) / np.maximum(held, 1), centroids)
    return np.sort(centroids.astype(np.float32))


def nearest(values: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Which centroid [n] is nearest to each value; of two that are as near the lower one."""
    return np.searchsorted(_middles(centroids.astype(np.float64)), values.astype(np.float64)).astype(np.uint8)


def _middles(centroids: np.ndarray) -> np.ndarray:
    middles: np.ndarray = (centroids[1:] + centroids[:-1]) / 2
    return middles


def _coded_size(shape: Shape, federation: Federation) -> int:
    return 4 * federation.clusters + -(-count(shape) * width(federation.clusters) // 8)


def _is_coded(shape: Shape, federation: Federation) -> bool:
    return _coded_size(shape, federation) < 4 * count(shape)
