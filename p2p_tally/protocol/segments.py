"""How a vector of parameters is split: into one segment for each participant, and segments into runs to send."""

from itertools import pairwise

from p2p_tally.protocol.frames import CHUNK_BYTES

RUN = CHUNK_BYTES // 4  # parameters


def segments(length: int, parts: int) -> list[slice]:
    """`length` split into `parts` segments whose lengths differ by at most one; the longer ones first."""
    short, longer = divmod(length, parts)
    ends = [0]
    for part in range(parts):
        ends.append(ends[-1] + short + (part < longer))
    return [slice(start, end) for start, end in pairwise(ends)]


def runs(whole: slice) -> list[slice]:
    """A segment split into the runs that are sent."""
    return [slice(start, min(start + RUN, whole.stop)) for start in range(whole.start, whole.stop, RUN)]
