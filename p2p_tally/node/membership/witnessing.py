"""Signs this node's ballots, and finds members that sign different ballots for different neighbours.

At the end of each batch a node signs what it has sent, and gives the signature to its neighbours. Each tells its own
neighbours which digest it was given by whom. If somebody has another digest of the same member, the two exchange the
signatures, and both have the proof. Words prove nothing: a proof is two valid signatures, so nobody can frame another.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from random import SystemRandom

from p2p_tally.errors import PeerError, TrustError
from p2p_tally.ids import NodeName
from p2p_tally.protocol.barrier import Arrival
from p2p_tally.protocol.evidence_messages import SAID_BYTES, START_BYTES, Echoed, Passed, Signed, Witnessed
from p2p_tally.protocol.masks import from_mask, to_mask
from p2p_tally.trust.evidence import Proof, Statement, ballot_digest, batch_of, root_of, rounds_of
from p2p_tally.trust.keys import check_signature

log = logging.getLogger(__name__)

# How many batches, and starts of a member in one batch, are remembered.
BATCHES = 4
STARTS = 4
# Of how many members one message speaks: it must be no longer than a part of the members' list.
MOST_ECHOED = 512


class Signatures:
    """Who signs for this node, and whose keys it knows."""

    def __init__(
        self,
        federation: str,
        name: NodeName,
        sign: Callable[[bytes], bytes],
        keys: Callable[[NodeName], Sequence[bytes]],
    ) -> None:
        """`keys`: all keys that a member has had, the newest last."""
        self.federation = federation
        self.name = name
        self._sign = sign
        self._keys = keys

    def statement(self, member: NodeName, said: Signed | Passed) -> Statement:
        return Statement(self.federation, member, said.batch, said.start, said.count, said.root)

    def sign(self, batch: int, start: int, ballots: dict[int, bytes]) -> Signed:
        root, count = root_of(ballots), len(ballots)
        part = Statement(self.federation, self.name, batch, start, count, root).signed_part
        return Signed(batch, start, count, root, self._sign(part))

    def key(self, member: NodeName, said: Signed | Passed) -> bytes:
        """The member's key by which this was signed; a TrustError if it is by none."""
        error = TrustError(f"the keys of {member} are not known", reason="stranger")
        for key in reversed(self._keys(member)):
            try:
                check_signature(key, self.statement(member, said).signed_part, said.signature, f"ballots of {member}")
            except TrustError as found:
                error = found
            else:
                return key
        raise error


class Witnessing:
    """The signed ballots of one node and its neighbours."""

    def __init__(
        self,
        signatures: Signatures,
        members: Callable[[], Sequence[NodeName]],
        neighbours: Callable[[int], Collection[NodeName]],
        send: Callable[[Collection[NodeName], Witnessed], None],
        proven: Callable[[Proof], None],
        last_round: int,
    ) -> None:
        """`members`: in the order of their ranks. `proven` is called with each new proof."""
        self._signatures = signatures
        self._members = members
        self._neighbours = neighbours
        self._send = send
        self._proven = proven
        self._last_round = last_round
        # Random, so that after a restart a node does not use the same number again.
        self._start = SystemRandom().getrandbits(8 * START_BYTES - 1)
        self._batch = -1  # the batch of the ballots below
        self._own: dict[int, bytes] = {}  # digests by round
        self._heard: dict[NodeName, dict[int, bytes]] = defaultdict(dict)
        self._held: dict[tuple[NodeName, int], dict[int, Signed]] = {}  # by member and batch, then by start
        self._passed: set[tuple[NodeName, NodeName, int, int]] = set()  # to whom, whose, batch, start
        self._echoed: set[int] = set()  # batches

    # --- the rounds

    def sent(self, round: int, ballot: bytes) -> None:
        if batch_of(round) != self._batch:
            self._sign(round - 1)
            self._batch = batch_of(round)
            self._forget()
        self._own[round] = ballot_digest(ballot)
        if round in (rounds_of(self._batch)[1], self._last_round):
            self._sign(round)

    def _sign(self, round: int) -> None:
        if self._own:
            signed = self._signatures.sign(self._batch, self._start, self._own)
            self._send(self._neighbours(round), signed)
            self._own = {}
            self._echo(self._batch - 1)  # of those that did not all come in time

    def heard(self, peer: NodeName, round: int, ballot: bytes) -> None:
        if self._is_near(batch_of(round)):
            self._heard[peer].setdefault(round, ballot_digest(ballot))

    def link_up(self, peer: NodeName) -> None:
        self._heard.pop(peer, None)

    def _is_near(self, batch: int) -> bool:
        return abs(batch - max(0, self._batch)) < BATCHES

    def _forget(self) -> None:
        for key in [key for key in self._held if not self._is_near(key[1])]:
            del self._held[key]
        for rounds in self._heard.values():
            for round in [round for round in rounds if not self._is_near(batch_of(round))]:
                del rounds[round]
        self._passed = {entry for entry in self._passed if self._is_near(entry[2])}
        self._echoed = {batch for batch in self._echoed if self._is_near(batch)}

    # --- what comes in

    def receive(self, peer: NodeName, message: Witnessed) -> Arrival:
        if not self._is_near(message.batch):
            return Arrival.LATE
        match message:
            case Signed():
                self._accept_signed(peer, message)
            case Echoed():
                self._compare(peer, message)
            case Passed():
                self._accept_passed(peer, message)
        return Arrival.RECORDED

    def _accept_signed(self, peer: NodeName, message: Signed) -> None:
        self._signatures.key(peer, message)
        first, last = rounds_of(message.batch)
        came = {round: digest for round, digest in self._heard[peer].items() if first <= round <= last}
        if len(came) == message.count and root_of(came) != message.root:
            raise TrustError(f"it signed other ballots of rounds {first} to {last} than it sent", reason="signature")
        self._hold(peer, message)
        others = set(self._neighbours(last))
        if others and all((other, message.batch) in self._held for other in others):
            self._echo(message.batch)

    def _hold(self, member: NodeName, message: Signed) -> None:
        """Keep what a member signed; if it contradicts what is held, that is a proof."""
        held = self._held.setdefault((member, message.batch), {})
        known = held.get(message.start)
        if known is None:
            if len(held) < STARTS:
                held[message.start] = message
        elif known.root != message.root:
            self._prove(member, known, message)

    def _prove(self, member: NodeName, one: Signed, other: Signed) -> None:
        key = self._signatures.key(member, one)
        statements = (self._signatures.statement(member, one), self._signatures.statement(member, other))
        self._proven(Proof(key, *statements, (one.signature, other.signature)))

    def _echo(self, batch: int) -> None:
        """Tell the neighbours, once, what this node was given for a batch."""
        told = [member for member in self._members() if (member, batch) in self._held][:MOST_ECHOED]
        if batch in self._echoed or not told:
            return
        self._echoed.add(batch)
        said = b""
        for member in told:
            start, signed = max(self._held[member, batch].items())
            said += start.to_bytes(START_BYTES, "big") + signed.root
        self._send(self._neighbours(rounds_of(batch)[1]), Echoed(batch, to_mask(told, self._members()), said))

    def _compare(self, peer: NodeName, message: Echoed) -> None:
        """Where this node was given something else, show it to the peer; it then shows what it has."""
        told = from_mask(message.members, self._members())
        spoken_of = [member for member in self._members() if member in told]
        for place, member in enumerate(spoken_of):
            said = message.said[SAID_BYTES * place : SAID_BYTES * (place + 1)]
            start, root = int.from_bytes(said[:START_BYTES], "big"), said[START_BYTES:]
            own = self._held.get((member, message.batch), {}).get(start)
            if own is not None and root and own.root != root:
                self._show(peer, member, own)

    def _show(self, peer: NodeName, member: NodeName, signed: Signed) -> None:
        """Once for each peer, member, batch and start."""
        entry = peer, member, signed.batch, signed.start
        if entry not in self._passed:
            self._passed.add(entry)
            rank = list(self._members()).index(member)
            passed = Passed(rank, signed.batch, signed.start, signed.count, signed.root, signed.signature)
            self._send([peer], passed)

    def _accept_passed(self, peer: NodeName, message: Passed) -> None:
        members = self._members()
        if message.origin >= len(members):
            raise PeerError(f"signed by member {message.origin}", reason="origin")
        member = members[message.origin]
        self._signatures.key(member, message)
        signed = Signed(message.batch, message.start, message.count, message.root, message.signature)
        own = self._held.get((member, message.batch), {}).get(message.start)
        if own is not None and own.root != message.root:
            self._prove(member, own, signed)
            self._show(peer, member, own)
