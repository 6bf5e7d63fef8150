"""What stacked peers answer for the probes of a round, how it is sent, and what they learn from it.

Tensor code for what `learning/answers.py`, `learning/consensus.py` and `BallotFormat` do for one peer. N peers, n of
them in this process, P probes, C classes. Logits come block by block, [b, C, P] each.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from p2p_tally.learning.answers import votes
from p2p_tally.learning.consensus import Answer, measure, votes_of
from p2p_tally.learning.member_changes import changes_members
from p2p_tally.learning.methods import Sends, method_of
from p2p_tally.learning.objectives import blended_target
from p2p_tally.learning.setup import Task
from p2p_tally.learning.voting.reliability import weighs_by_reliability
from p2p_tally.node.traffic import VotesSent
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.messages import Vote
from p2p_tally.runner.stacked.any_target import answers_of, any_target, is_batched
from p2p_tally.runner.stacked.batched_model import slope_to_target
from p2p_tally.runner.stacked.block import Slope
from p2p_tally.runner.stacked.channels import Channels
from p2p_tally.runner.stacked.judges import Judges
from p2p_tally.runner.stacked.listeners import Listeners
from p2p_tally.runner.stacked.neighbourhoods import Neighbourhoods
from p2p_tally.runner.stacked.overlap import Asked
from p2p_tally.runner.stacked.own_loss import slope_of_loss
from p2p_tally.runner.stacked.peers import Peers
from p2p_tally.runner.stacked.subjects import stacked_subject


class Heard(NamedTuple):
    """What peers learn from the probes of a round."""

    round: int
    channels: Channels  # with the votes that each has
    consensus: Tensor | None = None
    agreement: float | None = None  # where it decides on merges


class Answers:
    """The answers of all peers of a federation."""

    def __init__(self, task: Task, stack: Peers, ballots: BallotFormat) -> None:
        self._task = task
        self._stack = stack
        self._place = stack.place
        self._ballots = ballots
        self._method = method_of(task.federation)
        self._sends = self._method.sends
        self.subject = stacked_subject(task, stack)
        # For any other row its own functions are called, the target peer by peer.
        self._batched = is_batched(self._method, task.federation)
        self._listeners = None
        if weighs_by_reliability(task.federation):
            self._listeners = Listeners(len(stack.names), task.classes, alike=not changes_members(task.federation))

        self.judges = None
        if task.federation.exam:
            alike = task.probes.labelled and not changes_members(task.federation)
            self.judges = Judges(stack, task.classes, alike)

    def examine(self, r: int, voting: np.ndarray) -> None:
        """Before those who are voting [N] look at the probes of a round."""
        if self.judges is not None:
            self.judges.examine(r, voting)

    def state(self) -> dict[str, Tensor]:
        """What the next round depends on besides the peers' models."""
        kept = {} if self._listeners is None else self._listeners.state()
        return kept if self.judges is None else kept | self.judges.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        if self._listeners is not None:
            self._listeners.restore(state)
        if self.judges is not None:
            self.judges.restore(state)

    def can_be_sent(self, logits: Sequence[Tensor]) -> np.ndarray:
        """Whose answer has a ballot [N]. A vote always has; probabilities must be finite."""
        if not self._batched:
            return np.array([self._ballots.can_encode(answer) for answer in self._answers(logits)])
        if self._sends is Sends.VOTES:
            return np.ones(len(self._stack.names), bool)
        finite = self._stack.by_rank([part.amax(1).isfinite().all(1) for part in logits])
        return self._place.whole(finite.cpu().numpy())

    def hear(self, asked: Asked, opened: np.ndarray, links: Neighbourhoods, audience: Neighbourhoods) -> Heard:
        """What the peers learn from a poll. `opened` [N]: after which round each peer's channel is open. `links`,
        `audience`: the graph of that round, over links and as votes travel.

        Some are below the quorum while an opening spreads, and where a matching leaves a peer without a partner. How
        far votes agree may tell how much they count.
        """
        (r, logits), settings = asked, self._task.federation
        now = Channels.of(settings, r, opened, links.there)
        speaking = now.speaks
        if not speaking.any():
            return Heard(r, now)
        speaking = speaking & self.can_be_sent(logits)
        if not (speaking.all() and audience.degree.all()):
            now = now.with_quorum(audience.sums(speaking.astype(float)), audience.degree + 1)
        if settings.consensus_weight == "agreement":
            now = now.with_agreement(self.beyond_chance(logits, speaking, audience))
        by_drift = settings.merge_when == "drift" and now.speaks.any()
        agreement = self.agreement(logits, speaking) if by_drift else None
        return Heard(r, now, self.consensus(r, logits, speaking, now, audience), agreement)

    def consensus(
        self,
        r: int,
        logits: Sequence[Tensor],
        speaking: np.ndarray,
        now: Channels,
        audience: Neighbourhoods,
    ) -> Tensor | None:
        """What the peers here hear of those who are `speaking` [N]: [n, P, C], or [1, P, C] where all hear the same.
        None where nobody speaks or hears. `now`: the peers' channels with the votes that they have."""
        if not speaking.any():
            return None
        if not self._batched:
            answers, task = self._answers(logits), self._task
            heard = list(audience.heard(speaking))
            if self._listeners is not None or self.judges is not None:
                named, labels = np.stack([votes_of(answer) for answer in answers]), task.probes.labels_of(r)
                if self._listeners is not None:
                    heard = self._listeners.weigh(audience, speaking, now.speaks, named, labels)
                if self.judges is not None:
                    heard = self.judges.weigh(heard, now.speaks, named, labels)
            return any_target(self._method, task.federation, task.classes, answers, heard).to(self._stack.device)
        if self._sends is Sends.VOTES:
            classes, dissent = self._task.classes, self._task.federation.inverse_agreement
            cast = self._place.near(self._votes(logits), audience, classes)  # [m, P]
            if not len(self._place.held):
                return None
            return torch.from_numpy(audience.tally(cast, classes, speaking, dissent)).to(self._stack.device)
        rows = self._stack.by_rank([self._distribution(part) for part in logits])
        near = self._place.near(rows.cpu().numpy(), audience)
        return audience.mean(torch.from_numpy(near).to(rows.device), speaking) if len(self._place.held) else None

    def beyond_chance(self, logits: Sequence[Tensor], speaking: np.ndarray, audience: Neighbourhoods) -> np.ndarray:
        """How far the votes that each peer hears agree beyond chance [N], or [1] for all."""
        return audience.beyond_chance(self._cast(logits), self._task.classes, speaking)

    def agreement(self, logits: Sequence[Tensor], speaking: np.ndarray) -> float | None:
        """How far the votes of those who are speaking [N] agree; None where there are fewer than two."""
        cast = self._cast(logits)[speaking]
        return measure(cast, self._task.classes, None).agreement if len(cast) > 1 else None

    def _cast(self, logits: Sequence[Tensor]) -> np.ndarray:
        """The class that the answer of each peer here puts first [n, P], as those who receive it have it."""
        if not self._batched:
            return np.stack([votes_of(answer) for answer in self._answers(logits)])
        if self._sends is Sends.SOFT and self._ballots.precision != "float32":  # rounding can make two classes equal
            return self._votes([self._distribution(part).mT for part in logits])
        return self._votes(logits)

    def slope(self, r: int, consensus: Tensor | None, now: Channels) -> Slope:
        """The gradient of what each peer learns by: a row's own loss, or the cross-entropy to a target."""
        if self._method.loss is not None:
            return slope_of_loss(self._method.loss, self.subject, self._task.classes, r, consensus, now)  # all are here
        target = self.target(r, consensus, now)
        return lambda seen, rows: slope_to_target(seen, target[rows] if len(target) > 1 else target)

    def target(self, r: int, consensus: Tensor | None, now: Channels) -> Tensor:
        """What each peer here learns from [n, P, C], by the weights of its channel; [1, P, C] where all learn alike."""
        device, classes = self._stack.device, self._task.classes
        extra = self._task.federation.disagreement_weight if self._method.weighs_disagreement else 0.0
        by_margin = self._task.federation.consensus_weight == "margin"

        def blend(label: float, own: np.ndarray | None) -> Tensor:
            """For those here of the peers that are its `own` [N] (None: all), with one weight for labels. Whether one
            weight serves all decides about the last digits, so it is asked of all, wherever they are."""
            weights, held = now.consensus if own is None else now.consensus[own], self._place.held
            rows = None if own is None else torch.from_numpy(np.flatnonzero(own[held])).to(device)
            weight: float | Tensor = float(weights[0])
            if (weights != weights[0]).any():
                here = now.consensus[held] if own is None else now.consensus[held][own[held]]
                weight = torch.from_numpy(here.astype(np.float32)).view(-1, 1, 1).to(device)
            spoken = consensus is not None and (isinstance(weight, Tensor) or weight > 0)
            target = self.subject.taught(consensus, rows) if spoken and consensus is not None else None
            labels = self.subject.labels(r, rows)
            blended = blended_target(classes, labels, target, label, weight, extra, by_margin)
            return blended if blended.dim() == 3 else blended.unsqueeze(0)

        kinds = np.unique(now.label).tolist()
        if len(kinds) == 1 and now.trains.all():
            return blend(kinds[0], None)
        target: Tensor | None = None
        for label in kinds:
            own = now.trains & (now.label == label)
            places = torch.from_numpy(np.flatnonzero(own[self._place.held])).to(device)
            if len(places):
                part = blend(label, own)
                target = part.new_zeros(len(self._place.held), *part.shape[1:]) if target is None else target
                target[places] = part
        assert target is not None, "somebody learns"
        return target

    def _answers(self, logits: Sequence[Tensor]) -> list[Answer]:
        """Each peer's, as those who receive its ballot have it."""
        everyones = self._stack.by_rank([part.mT for part in logits])  # [N, P, C]
        return answers_of(self._method, self._task.federation, self._ballots, everyones, self.subject.answers)

    def _votes(self, logits: Sequence[Tensor]) -> np.ndarray:
        if not logits:
            return np.empty((0, 0), np.int64)
        if self._task.federation.abstain:
            return votes(self._stack.by_rank([part.mT for part in logits]), self._task.federation)
        return self._stack.by_rank([part.max(1).indices for part in logits]).cpu().numpy()  # [N, P]

    def said(self, r: int, logits: Sequence[Tensor], speaking: np.ndarray) -> list[VotesSent]:
        """The ballots of those who are speaking [N], together where they have the same length."""
        if not speaking.any():
            return []
        if self._ballots.form != "coded" or self._sends is not Sends.VOTES:  # every ballot is as long as any other
            return [(Vote(r, bytes(self._ballots.largest)), speaking)]
        cast, here = self._cast(logits), speaking[self._place.held]
        lengths = np.zeros(len(cast), np.int64)
        if here.any():
            lengths[here] = self._ballots.lengths(cast[here], self._task.probes.labels_of(r))
        lengths = self._place.whole(lengths)  # [N]
        return [
            (Vote(r, bytes(length)), speaking & (lengths == length)) for length in np.unique(lengths[speaking]).tolist()
        ]

    def _distribution(self, logits: Tensor) -> Tensor:
        """The answers [n, P, C] from logits [n, C, P], as those who receive the ballots have them."""
        logits = logits.mT
        if self._sends is Sends.SOFT and self._ballots.precision == "float32":
            return logits.softmax(-1)
        assert self._method.answer is not None
        said = self._ballots.as_decoded(self._method.answer(logits, self._task.federation))
        if not isinstance(said, tuple):
            return torch.from_numpy(said).to(logits.device)
        indices, probabilities = said
        rows = torch.zeros(logits.shape)
        rows.scatter_(-1, torch.from_numpy(indices), torch.from_numpy(probabilities))
        return rows.to(logits.device)
