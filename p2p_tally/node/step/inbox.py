"""Handles incoming frames: decodes and checks them, and passes them to the wait or notes what they say of the sender.

An invalid message is counted by reason, logged and dropped. All of this runs on the event loop's thread.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from p2p_tally.errors import FrameError, PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.step.announcer import Announcer
from p2p_tally.node.step.handovers import Handovers
from p2p_tally.node.step.votes import VoteMessage, VoteRoute
from p2p_tally.node.step.waits import Waits
from p2p_tally.node.step.witness import Witness
from p2p_tally.protocol import frames
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.barrier import IN_TIME, Arrival, has_passed
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.ledger import Ledger
from p2p_tally.protocol.messages import (
    Announce,
    Bye,
    Echoed,
    Fetch,
    Here,
    ListAsk,
    Listed,
    ListNumber,
    ListPart,
    ListRequest,
    Message,
    News,
    Passed,
    Piece,
    Ready,
    Relayed,
    Shard,
    Signed,
    Stage,
    State,
    Vote,
    Waiting,
    Withdraw,
)
from p2p_tally.protocol.peers import Event, Roster
from p2p_tally.protocol.scores import Offence, offence_of

log = logging.getLogger(__name__)

# The labels of a round's probes, -1 for a probe without one; None if no probe has one.
Labels = Callable[[int], np.ndarray | None]

# Takes a message about the members' list; or raises a PeerError.
ListDoor = Callable[[NodeName, Listed], Arrival]

# Messages that no honest peer sends often.
WORDS = (Here, Waiting, Withdraw, Bye, News, Fetch, ListNumber, ListAsk, ListPart, ListRequest, Echoed, Passed)

FURTHER = "it is in a later round"


class Inbox:
    """The incoming messages of one node."""

    def __init__(
        self,
        roster: Roster,
        votes: VoteRoute,
        waits: Waits,
        announcer: Announcer,
        ledger: Ledger,
        limits: Limits,
        ballots: BallotFormat,
        labels: Labels,
        rounds: int,
        on_here: Callable[[NodeName, int, bool], None] = lambda _peer, _round, _back: None,
        on_work: Callable[[NodeName], None] = lambda _peer: None,
        handovers: Handovers | None = None,
        last_round: Callable[[NodeName], int] | None = None,
        lists: ListDoor | None = None,
        witness: Witness | None = None,
        *,
        keeps_scores: bool = True,
    ) -> None:
        """`on_here`: called when a neighbour says that it plays, after which round, and whether it was away. `on_work`:
        called with each neighbour that sends a vote, an announcement or parameters of its own. `handovers`: None where
        this node neither gives nor gets a state. `last_round`: the last round that a peer plays; by default that of
        all. `lists`: takes messages about the members' list; None: there is none. `witness`: of signed ballots;
        None: ballots are not signed. `keeps_scores`: not where there are no deadlines. There no time passes that would
        make anything good, and who is not awaited would be lost."""
        # Messages by what became of them: an Arrival, or the reason of a refusal.
        self.arrivals: Counter[str] = Counter()
        self._roster = roster
        self._votes = votes
        self._waits = waits
        self._announcer = announcer
        self._ledger = ledger
        self._limits = limits
        self._ballots = ballots
        self._labels = labels
        self._rounds = rounds
        self._on_here = on_here
        self._on_work = on_work
        self._handovers = handovers
        self._last_round = last_round or (lambda _: rounds)
        self._lists = lists
        self._witness = witness
        self._keeps_scores = keeps_scores

    def allow(self, limits: Limits) -> None:
        """The members have changed, and with them the length of the longest frame."""
        self._limits = limits

    def deliver(self, peer: NodeName, frame: bytes, framed: int) -> bool:
        """A frame from a link. Never raises for an error of a peer. Returns False if the frame is no valid message."""
        if peer not in self._roster:
            self.arrivals[Arrival.STRANGER] += 1
            return True
        kept_protocol = True
        known = self._roster[peer]
        known.message_came()
        try:
            message = frames.decode(frame, self._limits)
            self._ledger.book_received(peer, message.stage, message.payload, framed)
            arrival = self._accept(peer, message) if self._has_round(message) else Arrival.TOO_FAR
            self.arrivals[arrival] += 1
            if arrival not in IN_TIME or isinstance(message, WORDS):
                self._count_useless(peer)
        except PeerError as error:
            self.refuse(peer, error)
            kept_protocol = not isinstance(error, FrameError)
        self._waits.update()
        return kept_protocol and not known.score.closed

    def refuse(self, peer: NodeName, error: PeerError) -> None:
        """Count and log an error of a peer, and let it cost what it costs."""
        self.arrivals[error.reason] += 1
        log.warning("refused: %s", error, extra={"event": "refused", "peer": peer, "reason": error.reason})
        offence = offence_of(error)
        if offence is not None:
            self.charge(peer, offence)

    def charge(self, peer: NodeName, offence: Offence) -> None:
        """A peer has broken the protocol. What follows from that is logged when it begins."""
        if not self._keeps_scores:
            return
        known = self._roster[peer]
        before = known.score.standing
        known.charge(offence)
        if known.score.standing is not before:
            text = "%s, because of: %s"
            extra = {"event": "standing", "peer": peer, "reason": known.score.standing.value}
            log.warning(text, known.score.standing, "; ".join(known.score.reasons), extra=extra)

    def _count_useless(self, peer: NodeName) -> None:
        score = self._roster[peer].score
        if not score.bears_useless() and self._waits.pass_time() and score.is_flooded:
            self.charge(peer, Offence.FLOOD)

    def _has_round(self, message: Message) -> bool:
        """Whether the round of a message is a round of this run. Honest peers send no others."""
        inner = message.message if isinstance(message, Relayed | News) else message
        return getattr(inner, "round", 0) <= self._rounds

    def _accept(self, peer: NodeName, message: Message) -> Arrival:
        match message:
            case Vote() | Ready() | Relayed():
                return self._votes.receive(peer, message, self)
            case Announce():
                return self._arrive(
                    peer, Stage.ANNOUNCE, message.round, 0, message, message.present + message.base + message.members
                )
            case Shard():
                # The exchange checks the length and the values: only it knows who takes part.
                return self._arrive(peer, message.stage, message.round, message.part, message.data, message.data)
            case News():
                return self._accept_news(peer, message)
            case Here():
                self._accept_here(peer, message.round)
            case Waiting():
                self._accept_waiting(peer, message)
            case Withdraw():
                self._roster[peer].withdrew(message.round)
                if self._waits.is_merging(message.round):
                    self._waits.stop_awaiting(peer, "it gave the merge up")
            case Bye():
                self._roster[peer].said_goodbye(finished=message.round >= self._last_round(peer))
                self._waits.will_not_come(peer, "it left")
            case _:
                return self._pass_in(peer, message)
        return Arrival.RECORDED

    def _pass_in(self, peer: NodeName, message: Message) -> Arrival:
        """What is for another part of the node, where it has this part."""
        match message:
            case Fetch() | State() | Piece() if self._handovers is not None:
                return self._handovers.receive(peer, message)
            case ListNumber() | ListAsk() | ListPart() | ListRequest() if self._lists is not None:
                return self._lists(peer, message)
            case Signed() | Echoed() | Passed() if self._witness is not None:
                return self._witness.receive(peer, message)
        raise FrameError(f"{message.kind.name.lower()} after the handshake", reason="unknown-kind")

    # --- votes and parameters

    @property
    def round(self) -> int:
        """The last round in which this node waited for something."""
        return self._waits.round

    def is_further(self, peer: NodeName) -> None:
        self._waits.stop_awaiting(peer, FURTHER)

    def count(self, origin: NodeName, vote: VoteMessage, via: NodeName) -> Arrival:
        """A ballot, or the count that a node sends instead of one."""
        item: Any = vote
        raw = f"{vote.right}/{vote.of}".encode() if isinstance(vote, Ready) else vote.ballot
        if isinstance(vote, Vote):
            # A ballot is checked before it is kept. One that is not wanted is not decoded.
            wanted = self._waits.wants(origin, Stage.VOTE, (vote.round, 0))
            labels = self._labels(vote.round) if wanted and self._ballots.needs_labels else None
            item = self._ballots.decode(vote.ballot, labels) if wanted else None
            if self._witness is not None and origin == via:
                self._witness.heard(origin, vote.round, vote.ballot)
        return self._arrive(origin, Stage.VOTE, vote.round, 0, item, raw, via)

    def _arrive(
        self,
        peer: NodeName,
        stage: Stage,
        round: int,
        part: int,
        item: Any,
        raw: bytes | memoryview,
        via: NodeName | None = None,
    ) -> Arrival:
        """`via`: the neighbour that sent it, if that may be another node than `peer`."""
        known, direct = self._roster[peer], via in (None, peer)
        arrival = self._waits.arrive(peer, stage, (round, part), item, raw, known.links if direct else 0)
        if arrival is Arrival.EQUIVOCATION:
            passed = "" if direct else f", passed on by {via}"
            log.warning(
                "a second %s for round %d%s: the first stands", stage.name.lower(), round, passed,
                extra={"event": "equivocation", "peer": peer},
            )  # fmt: skip
            if direct:
                self.charge(peer, Offence.CONTRADICTION)
        if not direct:
            return arrival  # a relayed message proves nothing about the peer's link or its round: the relay may lie
        if arrival in IN_TIME:
            known.on(Event.SPOKE)
        self._on_work(peer)
        place = self._waits.place
        if known.show_round(round) and place is not None and place[1] < round:
            # Messages are in order, so it has sent all that it will of that round.
            self._waits.will_not_come(peer, FURTHER)
        return arrival

    # --- what peers say about themselves

    def _accept_here(self, peer: NodeName, round: int) -> None:
        known = self._roster[peer]
        is_back = not known.is_there
        if is_back:
            log.info("plays again, from round %d on", round + 1, extra={"event": "plays-again", "peer": peer})
            self._announcer.welcome(peer, round)
        known.plays_after(round)
        known.note_round(round)
        self._on_here(peer, round, is_back)
        self._waits.sign_of_life(peer)
        place = self._waits.place
        if place is not None and place[1] <= round:
            self._waits.stop_awaiting(peer, "it joins after this round")

    def _accept_waiting(self, peer: NodeName, message: Waiting) -> None:
        self._roster[peer].note_round(message.round)
        self._waits.sign_of_life(peer)
        place = self._waits.place
        if place is not None and has_passed((message.at, message.round), place):
            self._waits.will_not_come(peer, "it waits itself, and what it sent has not come")
        self._announcer.answer(peer, message.round)

    def _accept_news(self, via: NodeName, news: News) -> Arrival:
        """A notice from a node that may not be a neighbour. The presence stays: only a node's own link changes it."""
        origin = self._votes.receive_news(via, news)
        if origin is None:
            return Arrival.DUPLICATE
        if not self._votes.relayed:
            return Arrival.RECORDED  # whom this node waits for, its own links say
        self._waits.sign_of_life(origin)
        voting, notice = self._waits.relayed_round, news.message
        match notice:
            case Here() if not self._votes.is_too_far(notice.round):
                self._roster[origin].joins_after(notice.round)
                self._roster[origin].vote_came()
                if voting is not None and voting <= notice.round:
                    self._waits.stop_awaiting(origin, "it joins after this round")
            case Waiting():
                if voting is not None and voting < notice.round:
                    self._waits.stop_awaiting(origin, FURTHER)  # its vote was lost on the way
                if notice.at is Stage.VOTE:
                    self._votes.long_wait(notice.round)
                self._announcer.answer(origin, notice.round)
            # Lost: `receive_news` has noted it.
        return Arrival.RECORDED
