"""--overlap: how far apart nodes can be that do not wait for each other's last votes, and what it does not go with.

A node that waits for the votes of a round in that round is at most one round behind another. One that waits for them in
the next round can be a round further behind, and then it waits for votes of the round before its own. So a peer can be
three rounds ahead of the round whose votes a node waits for, instead of one.
"""

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.methods import Method


def rounds_late(federation: Federation) -> int:
    """How many rounds after its own the votes of a round, and its merge, are used."""
    return int(federation.overlap)


def uses_votes(federation: Federation, round: int) -> bool:
    """Whether votes of this round are ever used. Those of the last one would be used after it, so they are not sent."""
    return round + rounds_late(federation) <= federation.rounds


def check_overlap(federation: Federation, method: Method, *, sends_ballots: bool) -> None:
    """Refuse --overlap where nothing can be under way while a node goes on."""
    such = "accepted are methods such as tally, fedavg, fedmd and diloco"
    if method.distils_merged:
        raise ConfigError(
            f"--overlap: the method {method.name} learns from the merged model in the round of its merge, so it cannot "
            f"go on before the merge has come; {such}"
        )
    if method.exchange is not None or method.sends.by_class:
        what = "parameters" if method.exchange is not None else "what it knows of classes"
        raise ConfigError(
            f"--overlap: the method {method.name} exchanges {what} in a way of its own, in the round; {such}"
        )
    if not sends_ballots and not federation.merge_every:
        raise ConfigError(
            f"--overlap: the method {method.name} with these options sends neither votes nor parameters, so there is "
            f"nothing to go on without; {such}"
        )
    if federation.join is not None or federation.leave is not None:
        raise ConfigError("--overlap: accepted where members do not change, without --join and --leave")
