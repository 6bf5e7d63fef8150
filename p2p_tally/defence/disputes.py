"""Who is left out of a merge, from who accuses whom. Of two members in a dispute at least one lies."""

from collections.abc import Iterable

Dispute = tuple[int, int]


def left_out(disputes: Iterable[Dispute]) -> set[int]:
    """The member with the most disputes goes first, until none is left. Of several with as many all go: nobody can tell
    which of two that accuse each other lies. One liar that is in dispute with several is left out alone."""
    pairs = {frozenset(pair) for pair in disputes if pair[0] != pair[1]}
    out: set[int] = set()
    while pairs:
        members = sorted(set().union(*pairs))
        counts = {member: sum(member in pair for pair in pairs) for member in members}
        most = max(counts.values())
        going = {member for member, count in counts.items() if count == most}
        out |= going
        pairs = {pair for pair in pairs if not pair & going}
    return out
