"""A node that joins gets the state of a neighbour: parameters, and what the next merge depends on.

A newcomer waits for its first round. Before that round its donor, the first neighbour that was there in the round
before, gives it what all members have then. If the donor is not there, the newcomer asks the others one by one, and if
nobody gives anything it begins with its own parameters. A node that comes back after merges that it missed asks in the
same way (`fetch`). Where peers never merge, only the round and the warm-up are handed over.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from statistics import median_low
from typing import Any

import torch
from torch import Tensor

from p2p_tally.errors import ParameterError
from p2p_tally.ids import NodeName
from p2p_tally.learning.learner import Learner
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.position import Position
from p2p_tally.node.step.handovers import Handovers
from p2p_tally.node.step.step import Abandoned, Step
from p2p_tally.protocol import frames
from p2p_tally.protocol.deadlines import Deadlines
from p2p_tally.protocol.handover import digest_of, pieces
from p2p_tally.protocol.messages import Fetch, State
from p2p_tally.topologies import Topology

log = logging.getLogger(__name__)

Compute = Callable[..., Awaitable[Any]]

# A peer that is asked answers when its next round begins: it has so many timeouts for that.
PATIENCE = 2.0
# How often a node that waits for a state looks where the donor is.
LOOK_SECONDS = 1.0


class Handover:
    """The hand-overs of one node, in both directions."""

    def __init__(
        self,
        name: NodeName,
        learner: Learner,
        topology: Topology,
        position: Position,
        step: Step,
        box: Handovers,
        outbox: Outbox,
        compute: Compute,
        deadlines: Deadlines,
    ) -> None:
        self._name = name
        self._learner = learner
        self._topology = topology
        self._position = position
        self._step = step
        self._box = box
        self._outbox = outbox
        self._compute = compute
        self._deadlines = deadlines
        self._told = 0  # the others take it that this node goes on after this round
        position.when_stopped(box.changed.set)

    async def join(self, round: int) -> None:
        """This round is next. A node that does not take part in it waits for the round in which it does, and for the
        state of a donor."""
        first = self._topology.next_round(self._name, round)
        if first is not None and (first > round or self._name in self._topology.newcomers(first)):
            await self._join(first)

    async def fetch(self) -> bool:
        """This node has missed merges: get the state of the first neighbour that gives it, and go on after its round.
        False: nobody did, and nothing has changed."""
        round = self._position.round + 1
        there = [peer for peer in self._step.neighbours(round) if self._step.roster[peer].is_there]
        return await self._ask(there, round)

    # --- getting

    async def _join(self, first: int) -> None:
        self._position.wait()
        self._step.begin_round(first)
        donors = [NodeName(peer) for peer in self._topology.donors(self._name, first)]
        if donors and (await self._take(donors[0], first) or await self._ask(donors, first)):
            return
        self._position.move_to(max(self._position.round, first - 1))
        log.warning("nobody gave a state: beginning round %d with its own", first, extra={"event": "own-parameters"})

    async def _ask(self, donors: Sequence[NodeName], first: int) -> bool:
        """Ask those that are there, one after the other. If they are in this round already they must not wait for this
        node: a donor answers only when its next round begins. So it says that it comes after the round that they are
        in."""
        self._told = first - 1
        for donor in donors:
            if not self._step.roster[donor].is_there:
                continue
            self._say_where(self._their_round(donors))
            self._box.expect(donor)
            self._outbox.broadcast([donor], Fetch(self._told))
            if await self._take(donor, first, asked=donors):
                self._say_where(self._position.round)
                return True
        self._box.expect(None)
        return False

    def _say_where(self, round: int) -> None:
        """Go on after this round, if it is a later one than the others know, and tell them."""
        if round > self._told:
            self._told = round
            self._position.move_to(round)
            self._step.announcer.here()

    def _their_round(self, donors: Sequence[NodeName]) -> int:
        """A round that most of these have not passed: the one after that of their last messages. 0: not known."""
        there = [self._step.roster[peer] for peer in donors if self._step.roster[peer].is_there]
        last = median_low([max(peer.seen, peer.joined) for peer in there] or [0])
        return last + 1 if last else 0

    async def _take(self, donor: NodeName, first: int, asked: Sequence[NodeName] = ()) -> bool:
        """Wait for a donor's state and take it. False: it does not come, or is not usable. `asked`: who may be waiting
        for this node meanwhile, if it has asked; empty: the donor gives it unasked."""
        try:
            if not await self._arrives(donor, first, asked):
                return False
            arrived = self._box.arriving(donor)
            assert arrived is not None
            await self._compute(take_state, self._learner, arrived.data())
            head = arrived.head
        except ParameterError as error:
            self._step.inbox.refuse(donor, error)
            return False
        finally:
            self._box.forget(donor)
        self._position.take_over(head.round, head.warmup, head.merged_at)
        text = "joins with its state after round %d"
        log.info(text, head.round, extra={"event": "handed-over", "peer": donor})
        return True

    async def _arrives(self, donor: NodeName, first: int, asked: Sequence[NodeName]) -> bool:
        """Whether the whole state comes. There is no limit as long as the round has not begun elsewhere; from then on a
        donor has a timeout from one piece to the next."""
        clock = asyncio.get_running_loop().time
        seconds = self._deadlines.timeout()
        patience = None if seconds is None else seconds * (PATIENCE if asked else 1.0)
        until, had = None, -1
        while True:
            if self._position.stopping:
                raise Abandoned
            arriving = self._box.arriving(donor)
            if arriving is not None and arriving.complete:
                return True
            now, has = clock(), -1 if arriving is None else arriving.arrived
            if not asked and has < 0 and self._is_past(donor, first):
                return False
            if asked and has < 0:  # they may wait for this node in a round that they began before they heard it ask
                self._say_where(self._their_round(asked))
            overdue = bool(asked) or has >= 0 or self._has_begun(donor, first)
            if patience is not None and overdue and (until is None or has != had):
                until = now + patience
            if until is not None and now >= until:
                log.warning("no state came from it", extra={"event": "missed", "peer": donor})
                return False
            had = has
            self._box.changed.clear()
            look = None if seconds is None else now + min(LOOK_SECONDS, seconds / 2)
            next_look = look if until is None else until if look is None else min(until, look)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_look):
                    await self._box.changed.wait()

    def _is_past(self, donor: NodeName, first: int) -> bool:
        """Whether the donor has begun this round without a link to this node: it gives its state before that, and what
        goes over a link stays in order."""
        known = self._step.roster[donor]
        return known.is_there and max(known.shown, known.joined) >= first

    def _has_begun(self, donor: NodeName, first: int) -> bool:
        """Whether somebody is in this round already, or the donor cannot be reached."""
        roster = self._step.roster
        return not roster[donor].is_there or any(max(peer.seen, peer.joined + 1) >= first for peer in roster.values())

    # --- giving

    async def give(self, round: int) -> None:
        """Give this node's state, which is that before this round, to the newcomers of this round, and to who asks."""
        new = [NodeName(peer) for peer in self._topology.newcomers(round)]
        await self._give_to([peer for peer in new if self._topology.donors(peer, round)[:1] == (self._name,)], round)
        await self.give_asked(round)

    async def give_asked(self, round: int) -> None:
        """Give it to who asks for it."""
        await self._give_to(self._box.take_asked(round - 1), round)

    async def _give_to(self, takers: list[NodeName], round: int) -> None:
        if not takers:
            return
        await self._step.have_links_to(takers)
        data = await self._compute(state_bytes, self._learner)
        notes = self._position.notes()
        head = State(round - 1, notes["warmup"], notes["merged_at"], len(data), digest_of(data))
        self._outbox.broadcast(takers, head)
        for piece in pieces(data):
            frame = frames.encode(piece)
            await asyncio.gather(*(self._outbox.stream(peer, piece, frame) for peer in takers))


def state_bytes(learner: Learner) -> bytes:
    """The tensors that are handed over, one after the other."""
    return b"".join(_bytes(tensor).tobytes() for tensor in learner.handed_over().values())


def state_size(learner: Learner) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in learner.handed_over().values())


def take_state(learner: Learner, data: bytes) -> None:
    """The inverse, at another learner of the federation; a ParameterError if a value is not finite."""
    found: dict[str, Tensor] = {}
    start = 0
    for key, tensor in learner.handed_over().items():
        size = tensor.numel() * tensor.element_size()
        flat = torch.frombuffer(bytearray(data[start : start + size]), dtype=tensor.dtype)
        found[key] = flat.view(tensor.shape)
        if not torch.isfinite(flat).all():
            raise ParameterError("NaN or infinity in a state", reason="not-finite")
        start += size
    learner.take_over(found)


def _bytes(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
