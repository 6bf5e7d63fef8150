"""Which scheme of predictive.py probably gives the shortest ballot for these votes.

Only the sender uses this, and the ballot names the scheme. So rounding errors here can make a ballot a little longer
but never wrong. A receiver computes with integers only.
"""

import numpy as np

from p2p_tally.protocol.bits import Ints, runs
from p2p_tally.protocol.predictive import VOTE_BITS, Scheme, context_of, is_possible

TABLE_ENTRY = 6  # bits that a table needs for one class, about
# Measured: with guesses by context a ballot takes 1.0 to 1.3 times the estimate below.
CONTEXT_ALLOWANCE = 1.15


def likely_smallest(votes: Ints, classes: int, labels: Ints) -> Scheme:
    bits = {Scheme.PLAIN: _full_bits(votes)}
    labelled = int(np.count_nonzero(labels >= 0))
    if labelled:
        rest = votes[votes != labels]
        held = len(votes) - len(rest)
        flags = _entropy(np.array([held, labelled - held]))
        if is_possible(Scheme.LABEL_EVEN, labels, classes):
            bits[Scheme.LABEL_EVEN] = flags + len(rest) * float(np.log2(max(1, classes - 1)))
        bits[Scheme.LABEL] = flags + _full_bits(rest)
        for scheme in Scheme:
            context = context_of(scheme, labels)
            if context is not None:
                bits[scheme] = CONTEXT_ALLOWANCE * _context_bits(votes, context)
    return min(bits, key=lambda scheme: bits[scheme])


def _entropy(counts: Ints) -> float:
    """Bits for a sequence of symbols, for a reader who knows these counts of them."""
    counts = counts[counts > 0]
    return float((counts * np.log2(counts.sum() / counts)).sum())


def _full_bits(votes: Ints) -> float:
    counts = np.bincount(votes)
    return _entropy(counts) + TABLE_ENTRY * int(np.count_nonzero(counts))


def _context_bits(votes: Ints, context: Ints) -> float:
    """Each distinct pair of context and vote is written once; each vote then costs its entropy given the context."""
    _, tally = runs(np.sort((context + 1) << VOTE_BITS | votes))
    open_bits = _entropy(tally) - _entropy(np.bincount(context + 1))
    return open_bits + len(tally) * _entropy(np.bincount(votes)) / len(votes)
