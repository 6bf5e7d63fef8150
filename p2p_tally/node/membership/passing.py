"""How members pass their list on over their links: numbers, changes, and requests for who orders changes.

On a new link both sides say which change is their last; who has fewer asks for the rest. A change that is new here goes
to all links at once. A request goes to who orders changes, over others where there is no link to it.
"""

import hashlib
import json
import logging
from collections import OrderedDict
from typing import Protocol

from p2p_tally.errors import TrustError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.membership.points import reached
from p2p_tally.node.membership.roll import Roll
from p2p_tally.protocol.barrier import Arrival
from p2p_tally.protocol.list_messages import LIST_BYTES, ListAsk, Listed, ListNumber, ListPart, ListRequest
from p2p_tally.trust.chain import TwoLists
from p2p_tally.trust.changes import Request, canonical
from p2p_tally.trust.members import Members

log = logging.getLogger(__name__)

# Requests of others that are kept until they are in the list, for a link to who orders changes.
REMEMBERED = 64


class OpenLinks(Protocol):
    def open_links(self) -> list[NodeName]: ...


class Passing:
    """The list over the links of one node."""

    def __init__(self, roll: Roll, links: OpenLinks, outbox: Outbox) -> None:
        self._roll = roll
        self._links = links
        self._outbox = outbox
        self._passed: OrderedDict[bytes, Request] = OrderedDict()  # of others
        self._requests: dict[bytes, Request] = {}  # of this node, until they are in the list
        self._numbers: dict[NodeName, int] = {}  # of the lists of others, as they said
        roll.listen(self._tell_all)

    # --- telling

    def link_up(self, peer: NodeName) -> None:
        members = self._roll.members
        self._send(peer, ListNumber(members.number, bytes.fromhex(members.digest)))
        theirs = self._passed.values() if peer == members.orderer else ()
        for request in (*self._requests.values(), *theirs):
            if self._is_open(request):
                self._send(peer, ListRequest(canonical(request.line())))

    def _tell_all(self, before: Members, after: Members) -> None:
        self._requests = {mark: request for mark, request in self._requests.items() if self._is_open(request)}
        lines = self._roll.lines(before.number + 1, LIST_BYTES)
        follows = before.number < after.number and self._roll.has(before.number, before.digest)
        for peer in self._links.open_links():
            if follows and lines:
                reached("sending list")
                self._send(peer, ListPart(before.number + 1, lines))
            self._send(peer, ListNumber(after.number, bytes.fromhex(after.digest)))

    def _send(self, peer: NodeName, message: Listed) -> None:
        self._outbox.broadcast([peer], message)

    # --- requests

    def submit(self, request: Request) -> None:
        """Have this request ordered: here, or by who orders changes. A TrustError if it is refused here."""
        if self._roll.orders or request.kind == "take-over":
            self._roll.order(request)
            return
        self._requests[_name_of(request)] = request
        self._pass_on(request, via=None)

    def forget(self, request: Request) -> None:
        self._requests.pop(_name_of(request), None)

    def _pass_on(self, request: Request, via: NodeName | None) -> None:
        """To who orders changes, or if there is no link, to all: one of them may have one."""
        open_links, orderer = self._links.open_links(), self._roll.members.orderer
        message = ListRequest(canonical(request.line()))
        for peer in [orderer] if orderer in open_links else [peer for peer in open_links if peer != via]:
            reached("sending request")
            self._send(peer, message)

    def _is_open(self, request: Request) -> bool:
        """Whether it could still come into the list."""
        try:
            self._roll.check(request)
        except TrustError:
            return False
        return True

    # --- what comes

    def receive(self, peer: NodeName, message: Listed) -> Arrival:
        """Or a TrustError, which is a peer's mistake."""
        match message:
            case ListNumber():
                self._heard_number(peer, message)
            case ListAsk():
                lines = self._roll.lines(message.first, LIST_BYTES)
                if lines:
                    self._send(peer, ListPart(message.first, lines))
            case ListPart():
                self._heard_part(peer, message)
            case ListRequest():
                return self._heard_request(peer, message)
        return Arrival.RECORDED

    def _heard_number(self, peer: NodeName, said: ListNumber) -> None:
        own = self._roll.members
        self._numbers[peer] = said.number
        if self._roll.has(said.number, said.digest.hex()):
            return  # this list has it: the peer is no further
        if said.number > own.number:
            self._send(peer, ListAsk(own.number + 1))
        else:
            self._send(peer, ListAsk(1))  # the two part somewhere

    def _heard_part(self, peer: NodeName, part: ListPart) -> None:
        before = self._roll.members
        if part.first > before.number + 1:
            self._send(peer, ListAsk(before.number + 1))
            return
        try:
            count = self._roll.receive(part.first, part.lines.splitlines())
        except TwoLists:
            raise
        except TrustError as error:
            if error.reason == "order" and part.first > 1:
                self._send(peer, ListAsk(1))  # the two part before this
                return
            raise
        if part.first + count <= min(self._numbers.get(peer, 0), self._roll.members.number + 1):
            self._send(peer, ListAsk(part.first + count))

    def _heard_request(self, peer: NodeName, message: ListRequest) -> Arrival:
        request = read_request(message.line)
        mark = _name_of(request)
        if mark in self._passed or any(c.request.signature == request.signature for c in self._roll.chain.changes):
            return Arrival.DUPLICATE
        if self._roll.orders:
            self._roll.order(request)
            return Arrival.RECORDED
        self._roll.check(request)
        self._passed[mark] = request
        while len(self._passed) > REMEMBERED:
            self._passed.popitem(last=False)
        self._pass_on(request, via=peer)
        return Arrival.RECORDED


def read_request(line: bytes) -> Request:
    try:
        return Request.read(json.loads(line))
    except (ValueError, RecursionError):
        raise TrustError("a request that is no JSON") from None


def _name_of(request: Request) -> bytes:
    return hashlib.sha256(canonical(request.line())).digest()
