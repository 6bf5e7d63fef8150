"""How many bytes the coded ballots of many voters take: a simulation counts them without writing them.

`coding.py` decides what a ballot looks like; tests compare the two. N voters, P probes.
"""

from itertools import accumulate
from math import comb

import numpy as np

from p2p_tally.protocol.bits import Bools, Ints
from p2p_tally.protocol.coding import encode_coded, known_labels
from p2p_tally.protocol.enumerative import FIRST_BYTE
from p2p_tally.protocol.packed import packed_size

# Ranks below this are computed for all voters at once, in 64 bits. They take at most 8 bytes, and for so short a ballot
# coding.py tries no other code than ranked and packed.
LARGEST_RANK = 1 << 62


def coded_lengths(votes: Ints, classes: int, labels: Ints | None) -> Ints:
    """[N], of votes [N, P] and labels [P], -1 where a probe has none."""
    count = votes.shape[1]
    if max(2, classes) ** count >= LARGEST_RANK:
        return np.array([len(encode_coded(row, classes, labels)) for row in votes], np.int64)
    ranks = _ranks(votes.astype(np.int64), classes, known_labels(labels, count, classes))
    strings = accumulate((256 - FIRST_BYTE) << 8 * more for more in range(7))  # of one byte, of at most two, ...
    ranked = 1 + np.searchsorted(np.array(list(strings)), ranks, "right")
    return np.minimum(ranked, 1 + packed_size(count, classes))


def _ranks(votes: Ints, classes: int, labels: Ints) -> Ints:
    """The ranks [N] of `encode_ranked`."""
    labelled = labels >= 0
    right, checked = labels[labelled], votes[:, labelled]
    wrong: Bools = checked != right  # [N, L]
    most, base = len(right), classes - 1
    number = wrong.cumsum(1)  # the first wrong vote of each voter is number 1
    ways = np.array([[comb(where, size) for size in range(most + 1)] for where in range(most + 1)], np.int64)
    subset = np.where(wrong, ways[np.arange(most), number], 0).sum(1)  # [N]
    mistakes = wrong.sum(1)
    exactly = [comb(most, size) * base**size for size in range(most + 1)]
    fewer = np.array([0, *accumulate(exactly[:-1])], np.int64)
    others = checked - (checked > right)
    digits = np.zeros(len(votes), np.int64)
    for place in range(most):
        digits = np.where(wrong[:, place], digits * base + others[:, place], digits)
    ranks: Ints = fewer[mistakes] + subset * np.array([base**size for size in range(most + 1)])[mistakes] + digits
    for free in votes[:, ~labelled].T:
        ranks = ranks * classes + free
    return ranks
