"""How a node behaves towards others: honest, or as --attack says of the member of its rank."""

from collections.abc import Callable
from functools import partial

from p2p_tally.attacks.kinds import About, check_attacks, lies_of
from p2p_tally.attacks.liar import Known, Liar
from p2p_tally.attacks.messages import FalseMessages
from p2p_tally.config import Federation
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.schedule import sends_changes
from p2p_tally.learning.setup import Task
from p2p_tally.node.formats import ballot_format
from p2p_tally.node.links.false_outbox import FalseOutbox
from p2p_tally.node.links.outbox import MakeOutbox, Outbox
from p2p_tally.topologies import Topology


class Conduct:
    """That of the member of one rank. `known`: what a liar of a simulation knows of others."""

    def __init__(self, federation: Federation, rank: int, known: Known | None = None) -> None:
        self._federation = federation
        self._rank = rank
        self._known = known

    @property
    def make_learner(self) -> Callable[..., Learner]:
        """What makes this member's learner."""
        false = (About.ANSWERS, About.PARAMETERS)
        if not any(lies_of(self._federation, self._rank, about) for about in false):
            return Learner
        return partial(Liar, rank=self._rank, known=self._known)

    def make_outbox(self, learner: Learner, topology: Topology) -> MakeOutbox:
        """What makes this member's outbox."""
        about = lies_of(self._federation, self._rank, About.MESSAGES)
        if not about:
            return Outbox
        sizes = learner.probes.votes_per_round, learner.classes, learner.features
        ballots = ballot_format(self._federation, *sizes)
        lies = FalseMessages(about, ballots, learner.probes.labels_of, not sends_changes(self._federation))
        return partial(FalseOutbox, lies=lies, rank=topology.rank)


def daemon_conduct(task: Task, rank: int | None, name: str, topology: Topology) -> Conduct:
    """That of a daemon; or a ConfigError. `rank`: as the operator has given it; None: by the order of names."""
    check_attacks(task.federation, "daemon", task.classes)
    return Conduct(task.federation, topology.rank(name) if rank is None else rank)
