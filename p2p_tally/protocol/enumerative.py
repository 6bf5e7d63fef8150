"""The ranked ballot: the exact code for few votes, or many with few wrong ones.

All ballots there could be are put in order, those with fewer votes against their label first; the ballot is
its place in that order, one integer in as few bytes as hold it. Integers only, and each ballot has one form.
"""

from math import comb, log2

import numpy as np

from p2p_tally.errors import BallotError
from p2p_tally.protocol.bits import Ints

FIRST_BYTE = 8  # a ranked ballot begins with a byte from this to 255; lesser ones announce other codes
MOST_BYTES = 64  # long integers make Python slow; past this the other codes waste little
MOST_VOTES = 4096  # a decoder's loop is over votes; past this only the ballot with nothing wrong is ranked


def encode_ranked(votes: Ints, classes: int, labels: Ints) -> bytes | None:
    """The ballot's rank, or None if it is not to be ranked."""
    labelled = labels >= 0
    right, free = labels[labelled], votes[~labelled]
    told = votes[labelled]
    wrong = np.flatnonzero(told != right)
    if len(votes) > MOST_VOTES and (len(wrong) or len(free)):
        return None
    # comb(n, k) >= (n / k) ** k: what is surely too long need not be computed.
    wrong_bits = len(wrong) * log2(len(right) * (classes - 1) / len(wrong)) if len(wrong) else 0
    if wrong_bits + len(free) * log2(classes) > 8 * MOST_BYTES:
        return None
    below, ballots = 0, 1  # ballots with fewer wrong; with exactly as many
    for fewer in range(len(wrong)):
        below += ballots
        ballots = ballots * (len(right) - fewer) * (classes - 1) // (fewer + 1)
    subset = sum(comb(where, place) for place, where in enumerate(wrong.tolist(), start=1))
    others = told[wrong] - (told[wrong] > right[wrong])
    rank = subset * (classes - 1) ** len(wrong) + _from_digits(others, classes - 1)
    return _to_bytes((below + rank) * classes ** len(free) + _from_digits(free, classes))


def decode_ranked(data: bytes, classes: int, labels: Ints) -> Ints:
    if len(data) > MOST_BYTES:
        raise BallotError(f"ranked ballot of {len(data)} bytes", reason="ballot-length")
    labelled = labels >= 0
    right, places = labels[labelled], np.flatnonzero(labelled)
    free = len(labels) - len(right)
    number = _from_bytes(data)
    if len(labels) > MOST_VOTES and (number or free):
        raise BallotError(f"ranked ballot of {len(labels)} votes, not all right", reason="ballot-code")
    rank, free_digits = divmod(number, classes**free)
    mistakes, ballots = 0, 1
    while rank >= ballots:
        rank -= ballots
        ballots = ballots * (len(right) - mistakes) * (classes - 1) // (mistakes + 1)
        mistakes += 1
        if mistakes > len(right):
            raise BallotError("rank past the last ballot", reason="ballot-code")
    subset, digits = divmod(rank, (classes - 1) ** mistakes)
    wrong = _subset(subset, mistakes, len(right))
    others = _to_digits(digits, classes - 1, mistakes)
    votes = labels.copy()
    votes[places[wrong]] = others + (others >= right[wrong])
    votes[~labelled] = _to_digits(free_digits, classes, free)
    return votes


def _subset(rank: int, size: int, of: int) -> Ints:
    """The `size` places, ascending, whose sum of comb(place, 1), comb(next, 2) ... is `rank`."""
    places = []
    place, ways = of - 1, comb(of - 1, size) if size else 0
    while size:
        if ways <= rank:
            places.append(place)
            rank -= ways
            if place:
                ways = ways * size // place  # comb(place - 1, size - 1) of comb(place, size)
            size -= 1
        else:
            ways = ways * (place - size) // place  # comb(place - 1, size)
        place -= 1
    return np.array(places[::-1], dtype=np.int64)


def _from_digits(digits: Ints, base: int) -> int:
    number = 0
    for digit in digits.tolist():
        number = number * base + digit
    return number


def _to_digits(number: int, base: int, count: int) -> Ints:
    digits = []
    for _ in range(count):
        number, digit = divmod(number, base)
        digits.append(digit)
    return np.array(digits[::-1], dtype=np.int64)


def _to_bytes(number: int) -> bytes | None:
    """One-byte strings are the first numbers, then all two-byte strings, and so on: no string is wasted."""
    strings = 256 - FIRST_BYTE
    for length in range(1, MOST_BYTES + 1):
        if number < strings:
            return (number + (FIRST_BYTE << 8 * (length - 1))).to_bytes(length, "big")
        number -= strings
        strings *= 256
    return None


def _from_bytes(data: bytes) -> int:
    shorter = sum((256 - FIRST_BYTE) << 8 * length for length in range(len(data) - 1))
    return int.from_bytes(data, "big") - (FIRST_BYTE << 8 * (len(data) - 1)) + shorter
