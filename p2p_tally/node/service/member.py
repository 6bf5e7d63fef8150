"""A daemon of a federation with a members' list: its members, their keys and addresses follow from the list.

A change of the list is saved, then told to the others, then applied here: links first, then the rounds to come.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from p2p_tally.config import DaemonSettings, Federation
from p2p_tally.errors import ConfigError, TrustError
from p2p_tally.ids import NodeName, in_order, node_name
from p2p_tally.learning.graph import graph_of
from p2p_tally.node.links.addresses import Address, parse_address
from p2p_tally.node.links.plan import lead
from p2p_tally.node.links.security import Desk
from p2p_tally.node.membership import admission, catching_up
from p2p_tally.node.membership.admission import Admission
from p2p_tally.node.membership.catching_up import CatchingUp
from p2p_tally.node.membership.errands import Errands
from p2p_tally.node.membership.founding import public_address
from p2p_tally.node.membership.home import Home
from p2p_tally.node.membership.passing import Passing
from p2p_tally.node.membership.requests import LOOK_SECONDS
from p2p_tally.node.membership.roll import Roll
from p2p_tally.node.membership.security import ListSecurity
from p2p_tally.node.membership.witnessing import Signatures, Witnessing
from p2p_tally.node.position import PAUSED
from p2p_tally.node.service.agreement import shared_values
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.node.service.recorder import OnLine
from p2p_tally.node.service.whereabouts import Whereabouts
from p2p_tally.protocol.barrier import Arrival
from p2p_tally.protocol.messages import Hello, Listed, Witnessed
from p2p_tally.protocol.presence import least_present
from p2p_tally.protocol.scores import Offence
from p2p_tally.topologies import Epochs, Topology
from p2p_tally.trust.changes import Details, Kind
from p2p_tally.trust.evidence import Proof
from p2p_tally.trust.members import Members

log = logging.getLogger(__name__)

# Who leaves or has another key hears of it over its old link, kept for so long. A removed one's is cut at once.
GOODBYE_SECONDS = 1.0
# How often a member to which there is no link is asked for its list.
CATCH_UP_SECONDS = 3.0


class MemberDaemon(Daemon):
    """A daemon whose members come from the list in its home."""

    def __init__(
        self,
        federation: Federation,
        settings: DaemonSettings,
        home: Home,
        *,
        inherited: socket.socket | None = None,
        on_line: OnLine | None = None,
        keep_record: bool = False,
        on_admin: Callable[[str], None] | None = None,
    ) -> None:
        self.home = home
        name = node_name(settings.name or "")
        self.roll = Roll(home, name, home.chain(), self._next_round)
        members = self.roll.members
        if name not in members.current:
            raise ConfigError(
                f"--home {home.folder}: {name} is no member any more; it takes a new invitation, and a new home"
            )
        if members.owner(self.roll.identity.credential.key) != name:
            raise ConfigError(f"{self.roll.identity.file}: not the key by which the members' list knows {name}")
        self.left = False  # this node is no member any more
        self.lists = self._receive_list
        self.witness = Witnessing(
            Signatures(members.federation, name, self._sign, self.roll.keys),
            self._ranks,
            self._neighbours,
            self._send,
            self._keep_proof,
            federation.rounds,
        )
        where = Whereabouts(
            name,
            None if settings.dial_only else parse_address(settings.listen, "--listen"),
            {peer: _address(members, peer) for peer in members.current if peer != name},
            ListSecurity(self.roll),
            {
                admission.PATH: Desk(admission.CLAIM_BYTES, self._answer_join),
                catching_up.PATH: Desk(catching_up.QUESTION_BYTES, self._answer_list),
            },
        )
        self._background: set[asyncio.Task[None]] = set()
        super().__init__(
            federation,
            settings,
            membership=True,
            inherited=inherited,
            on_line=on_line,
            keep_record=keep_record,
            on_admin=on_admin,
            where=where,
        )
        self.passing = Passing(self.roll, self.transport, self.node.outbox)
        self.admission = Admission(home, self.roll, self.passing, self.transport.turn_away)
        self.catching_up = CatchingUp(home, self.roll, self.transport.turn_away)
        self.errands = Errands(home, self.roll, self.passing)
        self.roll.listen(self._apply)

    # --- what comes in

    def _receive_list(self, peer: NodeName, message: Listed) -> Arrival:
        return self.passing.receive(peer, message)

    async def _answer_join(self, body: bytes) -> tuple[int, bytes]:
        return await self.admission.answer(body)

    async def _answer_list(self, body: bytes) -> tuple[int, bytes]:
        return await self.catching_up.answer(body)

    # --- signed ballots

    def _sign(self, part: bytes) -> bytes:
        return self.roll.identity.sign(part)

    def _neighbours(self, round: int) -> list[NodeName]:
        return self.node.step.neighbours(round)

    def _send(self, peers: Collection[NodeName], message: Witnessed) -> None:
        self.node.outbox.broadcast(peers, message)

    def _keep_proof(self, proof: Proof) -> None:
        """Somebody has signed different ballots for different neighbours."""
        member, (first, last) = NodeName(proof.first.member), proof.rounds
        if not self.home.keep_proof(proof) or member not in self.node.step.roster:
            return
        log.error(
            "signed two sets of ballots for rounds %d to %d: the proof is kept (p2p-tally evidence)", first, last,
            extra={"event": "evidence", "peer": member},
        )  # fmt: skip
        self.node.step.inbox.charge(member, Offence.PROVEN)

    # --- what follows from the list

    def _make_topology(self, federation: Federation, members: list[NodeName]) -> Topology:  # noqa: ARG002
        epochs = [(first, self._graph(federation, names)) for first, names in self.roll.members.epochs()]
        return Epochs(epochs, self._ranks())

    def _graph(self, federation: Federation, names: list[NodeName]) -> Topology:
        """The federation's graph over these members; while they are too few for it, all are neighbours."""
        try:
            return graph_of(federation, names)
        except ConfigError:
            return graph_of(federation.model_copy(update={"topology": "mesh", "degree": None}), names)

    def _ranks(self) -> list[NodeName]:
        """All who ever were members, in the order in which the list names them: the same at every node."""
        return list(dict.fromkeys(span.name for span in self.roll.members.spans))

    def _fields(self) -> tuple[tuple[str, str], ...]:
        """Members come and go, so nodes compare the federation itself."""
        return shared_values(self.task, self.learner, {"federation": self.roll.members.federation}, ("nodes",))

    def _checkpoint_members(self, members: list[NodeName]) -> list[NodeName]:  # noqa: ARG002
        return []  # they change while it runs, and the list says how; ranks stay

    def _least_present(self) -> int | None:
        return self.settings.chosen_presence

    def _may_begin(self) -> bool:
        members = len(self.roll.members.current)
        return 1 + len(self.transport.links) >= least_present(members, self.settings.chosen_presence, grows=True)

    def _next_round(self, kind: Kind) -> int:
        """Where this node orders changes: the round from which the next one holds.

        So many rounds ahead as nodes can be apart, so that all have heard of it. While nothing is played, at once.
        """
        position, members = self.node.position, self.roll.members
        begun = max([self.kept_rounds[-1], position.round, *(hello.round for hello in self.transport.hellos())])
        if not position.playing:
            ahead = begun + 1
        elif position.phase == PAUSED or len(members.current) == 1:
            ahead = position.round + (1 if position.between_rounds else 2)
        else:
            ahead = begun + 2 + lead(len(members.current) + 1)
        if kind is Kind.JOIN and ahead > position.rounds:
            raise TrustError(f"too late: the run ends with round {position.rounds}", reason="over")
        return ahead

    # --- the list has changed

    def _apply(self, before: Members, after: Members) -> None:
        self._change_links(before, after)
        self._change_rounds(after)
        if self.name not in after.current and not self.left:
            self.left = True
            log.warning("%s is no member any more", self.name, extra={"event": "left"})
            self.stop()

    def _change_links(self, before: Members, after: Members) -> None:
        changes = [change.request for change in self.roll.chain.changes[before.number :]]
        gently = {request.name for request in changes if request.kind in (Kind.LEAVE, Kind.ROTATE)}
        for peer in in_order(after.current):
            if peer == self.name:
                continue
            address = _address(after, peer)
            if peer not in self.transport.peers or _address(before, peer) != address:
                self.transport.add_peer(peer, address)
        gone = [peer for peer in list(self.transport.peers) if peer not in after.current]
        for peer in gone:
            if peer in gently:
                asyncio.get_running_loop().call_later(GOODBYE_SECONDS, self._part_from, peer)
            else:
                self._part_from(peer)
        if gently:
            asyncio.get_running_loop().call_later(GOODBYE_SECONDS, self.transport.security_changed)
        elif changes:
            self.transport.security_changed()

    def _part_from(self, peer: NodeName) -> None:
        if peer in self.transport.peers and peer not in self.roll.members.current:
            self.transport.remove_peer(peer)

    def _change_rounds(self, members: Members) -> None:
        """The members of the rounds to come. Rounds that are past, and the present one, stay as they were played."""
        position, federation = self.node.position, self.task.federation
        following = position.round + (1 if position.between_rounds else 2)
        wanted = [(following, members.at(following))]
        wanted += [(first, names) for first, names in members.epochs() if first > following]
        for first, names in wanted:
            if names and set(self.topology.members_at(first)) != set(names):
                self.node.step.members_changed(first, self._graph(federation, names), self._ranks())
        for peer in self.transport.peers:
            if peer not in self.transport.links and not self.node.step.roster[peer].messages:
                self.node.step.link_down(peer)  # a new member is not there before its link is
        self.node.step.begin_round(following)

    # --- running

    async def start(self) -> None:
        await super().start()
        self.node.step.begin_round(max(self.kept_rounds[-1] + 1, self.roll.members.round))
        self._tell_address()
        self._in_background(self._look_for_requests())
        self._in_background(self._catch_up())

    async def play(self) -> dict[str, Any]:
        return {**await super().play(), "left": self.left}

    async def close(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        with contextlib.suppress(OSError):
            self.errands.look()  # what the last round has brought
        await super().close()

    def link_up(self, peer: NodeName, hello: Hello) -> None:
        super().link_up(peer, hello)
        self.passing.link_up(peer)

    def _begin(self) -> None:
        """A newcomer that has never played waits for its first round, and for the state of a member."""
        if len(self.kept_rounds) == 1 and self.roll.members.current[self.name].since > 1:
            return
        super()._begin()

    def _tell_address(self) -> None:
        """If others are to dial another address than the list says, ask for that."""
        address, members = public_address(self.settings), self.roll.members
        if address != members.current[self.name].address:
            log.info("address %s, so far %s", address, members.current[self.name].address, extra={"event": "address"})
            self.passing.submit(self.roll.request(Kind.ADDRESS, self.name, Details(address=address)))

    async def _look_for_requests(self) -> None:
        while True:
            self.errands.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _catch_up(self) -> None:
        """Compare lists with members to which there is no link: one of the two may have a key that the other does not
        know of."""
        while True:
            for peer in self.transport.not_up():
                state = self.transport.peers.get(peer)
                if state is not None and state.address is not None:
                    await self.catching_up.ask(peer, state.address)
            await asyncio.sleep(CATCH_UP_SECONDS)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(_report)


def _report(task: asyncio.Task[None]) -> None:
    """A fault of the program is not to pass silently."""
    if not task.cancelled() and task.exception() is not None:
        log.error("a fault", exc_info=task.exception(), extra={"event": "fault"})


def _address(members: Members, peer: NodeName) -> Address | None:
    member = members.current.get(peer)
    return parse_address(member.address, f"the address of {peer}") if member is not None and member.address else None
