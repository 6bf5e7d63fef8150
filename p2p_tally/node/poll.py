"""The poll of a round: send this node's answer as a ballot, decode those of the others, and weight each answer."""

import logging
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from p2p_tally.ids import NodeName, in_order
from p2p_tally.learning.consensus import Answer, beyond_chance, counts, measure, votes_of
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.schedule import Channel, channel_opens, quorum, sends_ballots, with_agreement, with_quorum
from p2p_tally.learning.voting.reliability import weighs_by_reliability
from p2p_tally.node.step.step import Step
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.messages import Ready, Vote
from p2p_tally.topologies import Topology

log = logging.getLogger(__name__)


class Heard(NamedTuple):
    """What a round has to learn from."""

    round: int  # whose probes were answered
    answers: dict[NodeName, Answer]  # in order of name, own included
    channel: Channel  # with these answers
    weights: np.ndarray | None  # of each answer, or of each vote; None: all count the same


class Poll:
    """One node's polls. Each is over in its round."""

    def __init__(
        self,
        name: NodeName,
        learner: Learner,
        topology: Topology,
        step: Step,
        ballots: BallotFormat,
        chosen_quorum: int | None,
    ) -> None:
        """`chosen_quorum`: set by the operator; None for the default."""
        self._name = name
        self._learner = learner
        self._federation = learner.federation
        self._topology = topology
        self._step = step
        self._ballots = ballots
        self._chosen_quorum = chosen_quorum

    async def hear(self, round: int, own: Answer, now: Channel) -> Heard:
        """Send this node's answer, where the channel speaks, and wait for those of the others."""
        if now.speaks:
            await self._say(round, own)
        answers = await self._collect(round, own, now)
        if now.speaks:
            self._step.leave_if_others_left(round)
        return self._weighed(round, answers, now)

    async def settle(self) -> None:
        """Wait for what is under way: nothing is, once `hear` has returned."""

    async def _say(self, round: int, own: Answer) -> None:
        ballots = self._ballots
        if not ballots.can_encode(own):  # the others still wait for a message: send a count of 0 right
            log.warning("round %d: the model has diverged, no ballot", round, extra={"event": "diverged"})
            await self._step.say(round, Ready(round, 0, ballots.count))
        else:
            labels = self._learner.probes.labels_of(round) if ballots.needs_labels else None
            await self._step.say(round, Vote(round, ballots.encode(own, labels)))

    async def _collect(self, round: int, own: Answer, now: Channel) -> dict[NodeName, Answer]:
        """All answers of a round in which this node gave its own, in order of name."""
        if not now.speaks:
            return {self._name: own}
        heard = await self._step.hear(round)
        if self._ballots.can_encode(own):
            heard[self._name] = self._ballots.as_decoded(own)
        return {peer: heard[peer] for peer in in_order(heard) if not isinstance(heard[peer], Ready)}

    def _weighed(self, round: int, answers: dict[NodeName, Answer], now: Channel) -> Heard:
        then = self._with_votes(now, round, list(answers.values()))
        return Heard(round, answers, then, self._weights(round, answers) if then.speaks else None)

    def _with_votes(self, now: Channel, round: int, answers: list[Answer]) -> Channel:
        """The channel with the votes at hand. With fewer than the quorum there is no consensus: the round learns from
        labels only. How far votes agree may tell how much the consensus counts."""
        votes, voters = len(answers), len(self._step.votes.voters(round))
        then = with_quorum(now, votes, voters + 1, self._chosen_quorum)
        if then is not now and voters:  # a node without neighbours in this round misses nobody
            needed = quorum(voters + 1, self._chosen_quorum)
            log.warning("%d votes, quorum %d: no consensus this round", votes, needed, extra={"event": "no-quorum"})
        if then.speaks and self._federation.consensus_weight == "agreement":
            cast = np.stack([votes_of(answer) for answer in answers])  # [N, P]
            then = with_agreement(then, float(beyond_chance(counts(cast, self._learner.classes))))
        return then

    def _weights(self, round: int, heard: dict[NodeName, Answer]) -> np.ndarray | None:
        """The weight of each answer, or of each vote; None if all have the same."""
        voters, rank = [self._topology.rank(member) for member in heard], self._topology.rank(self._name)
        votes = np.stack([votes_of(answer) for answer in heard.values()])  # [N, P]
        labels, voter = self._learner.probes.labels_of(round), self._learner.voter
        trusted = voter.distrusted
        weights = voter.judge(voters, rank, votes, labels, self._by_option(round, heard, voters, votes, labels))
        self._log_change(trusted, voter.distrusted)
        return weights

    def _log_change(self, before: dict[int, float], now: dict[int, float]) -> None:
        """Say whose votes no longer count, and whose do again."""
        for rank in sorted(now.keys() ^ before.keys()):
            peer = self._topology.members[rank]
            if rank in before:
                log.info("the votes of %s count again", peer, extra={"event": "trusted-again", "peer": peer})
                continue
            text = "worse than chance in %.0f %% of its rounds: the votes of %s lose weight"
            log.warning(text, 100 * now[rank], peer, extra={"event": "distrusted", "peer": peer})

    def _by_option(
        self,
        round: int,
        heard: dict[NodeName, Answer],
        voters: list[int],
        votes: np.ndarray,
        labels: np.ndarray | None,
    ) -> np.ndarray | None:
        """The weights by --tally-weights."""
        if self._federation.tally_weights == "uniform":
            return None
        if weighs_by_reliability(self._federation):
            return self._learner.voter.weigh(voters, votes, labels)
        row = self._topology.mixed_weights(self._name, round, self._federation.hops)
        weights = np.array([row.get(member, 0.0) for member in heard])
        weights /= weights.sum()
        return weights

    def agreement(self, answers: list[Answer]) -> float | None:
        """How far the answers agree, if that decides on a merge. On a mesh all nodes have the same answers."""
        if self._federation.merge_when == "clock" or len(answers) < 2:
            return None
        votes = np.stack([votes_of(answer) for answer in answers])  # [N, P]
        return measure(votes, self._learner.classes, None).agreement

    async def opens(self, round: int, right: int, of: int) -> bool:
        """Whether an automatic warm-up ends. Each node sends how many probes it answered right."""
        own = Ready(round, right, of)
        # Where no ballots are ever sent, each node decides by itself.
        heard: dict[NodeName, Any] = {}
        if sends_ballots(self._federation):
            await self._step.say(round, own)
            heard = await self._step.hear(round)
            self._step.leave_if_others_left(round)
        counts = [own] + [item for item in heard.values() if isinstance(item, Ready)]
        right_in_all = sum((Fraction(count.right, count.of) for count in counts), Fraction(0))
        return channel_opens(right_in_all, len(counts), len(heard) + 1 - len(counts))
