"""How a vector of parameters is cut: into one segment for each participant, and into the runs that travel."""

from itertools import pairwise

from p2p_tally.protocol.frames import CHUNK_BYTES

RUN = CHUNK_BYTES // 4  # parameters


def segments(length: int, parts: int) -> list[slice]:
    """`length` cut into `parts` runs that differ by at most one; the longer ones first."""
    short, longer = divmod(length, parts)
    ends = [0]
    for part in range(parts):
        ends.append(ends[-1] + short + (part < longer))
    return [slice(start, end) for start, end in pairwise(ends)]


def runs(whole: slice) -> list[slice]:
    """A segment cut into the runs that travel."""
    return [slice(start, min(start + RUN, whole.stop)) for start in range(whole.start, whole.stop, RUN)]
