"""The ranked ballot: an optimal code for few votes, or for many votes of which few are wrong.

All possible ballots are put in order; those with fewer votes that differ from their label come first. A ballot is sent
as its position in that order, its rank: one integer, in as few bytes as it needs. The arithmetic is on integers only,
and each ballot has exactly one encoding.
"""

from math import comb, log2

import numpy as np

from p2p_tally.errors import BallotError
from p2p_tally.protocol.bits import Ints

FIRST_BYTE = 8  # a ranked ballot begins with a byte from this to 255; smaller ones are for other codes
MOST_BYTES = 64  # arithmetic on longer integers is slow, and for longer ballots the other codes are nearly as short
MOST_VOTES = 4096  # the decoder loops over the votes; above this only a ballot without wrong votes is ranked


def encode_ranked(votes: Ints, classes: int, labels: Ints) -> bytes | None:
    """The ballot's rank as bytes; None if this code is not for these votes."""
    labelled = labels >= 0
    right, free = labels[labelled], votes[~labelled]
    checked = votes[labelled]
    wrong = np.flatnonzero(checked != right)
    if len(votes) > MOST_VOTES and (len(wrong) or len(free)):
        return None
    # A lower bound, from comb(n, k) >= (n / k) ** k: a rank that is surely too long is not computed.
    wrong_bits = len(wrong) * log2(len(right) * (classes - 1) / len(wrong)) if len(wrong) else 0
    if wrong_bits + len(free) * log2(classes) > 8 * MOST_BYTES:
        return None
    below, ballots = 0, 1  # the number of ballots with fewer wrong votes; with exactly as many
    for fewer in range(len(wrong)):
        below += ballots
        ballots = ballots * (len(right) - fewer) * (classes - 1) // (fewer + 1)
    subset = sum(comb(where, place) for place, where in enumerate(wrong.tolist(), start=1))
    others = checked[wrong] - (checked[wrong] > right[wrong])
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
    """The combination with this rank: `size` places below `of`, ascending, whose comb(place, 1), comb(next, 2), ...
    add up to the rank."""
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
    """The first numbers are the one-byte strings, then come all two-byte strings, and so on: every string is used."""
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
