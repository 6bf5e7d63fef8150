"""How many members must be there for a round, and for which of those that come back it is worth to wait. Pure."""

from p2p_tally.errors import ConfigError

# A peer that comes back plays on from its newest checkpoint. By default there is one in every twentieth of the rounds,
# and the last two are kept: so it has at most this share of the rounds to play again.
WORTH_WAITING = 10


def least_present(members: int, chosen: int | None = None, *, grows: bool = False) -> int:
    """The least number of members present, own included, to play a round: what the operator chose, or a majority and
    two. Who is the only member needs nobody else; but where members come and go (`grows`) it waits for the second."""
    majority = max(2, members // 2 + 1)
    return chosen or (majority if grows else min(members, majority))


def worth_waiting_for(theirs: int, own: int, rounds: int) -> bool:
    """Whether a peer that says to have finished round `theirs` will soon be where this node is, after round `own`. If
    not, it is better to go on: the peer then jumps to the round of the others."""
    return own - theirs <= max(1, rounds // WORTH_WAITING)


def chosen_presence(chosen: int | None, members: int) -> int | None:
    """What the operator chose, if there are so many members."""
    if chosen is not None and chosen > members:
        raise ConfigError(f"--least-present {chosen}: accepted is 1 to {members}, the number of members")
    return chosen
