"""Before the first round: wait until the neighbours are there, and find in which round to begin."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from p2p_tally.ids import NodeName, in_order
from p2p_tally.node.links.link import LAST_DELAY
from p2p_tally.node.links.websocket import WebSocketTransport
from p2p_tally.node.position import Position
from p2p_tally.node.step.step import Step
from p2p_tally.protocol.majority import Basis, StartingPoint, most_play, starting_point
from p2p_tally.protocol.messages import Hello
from p2p_tally.protocol.start_wait import StartWait
from p2p_tally.topologies import Topology

log = logging.getLogger(__name__)


class Startup:
    """The start of one node. It ends when every neighbour is there, or is known not to come."""

    def __init__(
        self,
        transport: WebSocketTransport,
        topology: Topology,
        step: Step,
        position: Position,
        timeout: Callable[[], float | None],
        has_played: bool,
        may_begin: Callable[[], bool] = lambda: False,
    ) -> None:
        """`timeout`: seconds to wait for a peer that was there and has gone; None: no limit. `has_played`: this node
        has checkpoints of its own, so the federation has begun before. `may_begin`: whether so many are there that the
        others get only the time of one more attempt to connect."""
        self._transport = transport
        self._topology = topology
        self._step = step
        self._position = position
        self._timeout = timeout
        self._has_played = has_played
        self._may_begin = may_begin
        self._absent: set[NodeName] = set()  # will not come, as the launcher has said

    def will_not_come(self, peer: NodeName) -> None:
        self._absent.add(peer)
        self._transport.notify_change()

    async def wait(self) -> None:
        """Wait until every neighbour has sent a hello, and log for whom this node waits.

        If a majority of the neighbours plays already, this node is late: it waits only a moment for the rest. A
        neighbour that was seen, by this node or by others, and has gone, gets the usual timeout. If it said that it
        plays, it has ended or died: it gets only the time of one more attempt to connect, because somebody else may
        have said it in its name.
        """
        transport, clock = self._transport, asyncio.get_running_loop().time
        wait = StartWait(clock())
        while not transport.closing and wait.goes_on(clock(), self._missing(), self._timeouts(), self._is_late()):
            if wait.reminder_is_due(clock()):
                for peer in in_order(self._missing()):
                    self._log_waiting_for(peer)
            await transport.change(wait.next_check)
        if not transport.closing:
            self._begin_without(transport.not_up().intersection(self._absent | wait.given_up))
        transport.play()

    def _missing(self) -> set[NodeName]:
        return self._transport.not_up().difference(self._absent)

    def _timeouts(self) -> dict[NodeName, float]:
        """Seconds to wait, for the peers that were there."""
        if self._may_begin():
            return dict.fromkeys(self._transport.peers, LAST_DELAY)
        timeout = self._timeout()
        if timeout is None:
            return {}
        met = {name: timeout for name, peer in self._transport.peers.items() if peer.met}
        began = {name: min(timeout, LAST_DELAY) for name in met if self._step.roster[name].began}
        # This node has not met these. If they are alive, the next attempt to reach them may take this much longer.
        return dict.fromkeys(self._met_by_others(), timeout + LAST_DELAY) | met | began

    def _met_by_others(self) -> set[NodeName]:
        """The neighbours of all peers that play: before a peer plays it has met its neighbours. All peers, if this node
        has played before and a peer played when it came back."""
        if self._has_played and any(hello.running for hello in self._transport.hellos()):
            return set(self._transport.peers)
        round = self._position.round + 1
        playing = self._step.roster.playing
        return {NodeName(peer) for name in playing for peer in self._topology.neighbours(name, round)}

    def _is_late(self) -> bool:
        return most_play(self._transport.hellos(), self._transport.needed())

    def _begin_without(self, peers: Collection[NodeName]) -> None:
        for peer in in_order(peers):
            log.warning("it is gone: beginning without it", extra={"event": "begun-without", "peer": peer})
            self._step.link_down(peer)

    def _log_waiting_for(self, name: NodeName) -> None:
        peer = self._transport.peers[name]
        where = f" at {peer.address}" if peer.address and str(peer.address) != name else ""
        why = f" ({peer.detail})" if peer.detail else ""
        log.info("waiting for %s%s%s", name, where, why, extra={"event": "waiting", "peer": name})

    # --- in which round to begin

    def point(self, own: Sequence[int], launched_at: int | None) -> StartingPoint:
        """Where to begin. `own`: rounds of this node's checkpoints, with 0; `launched_at`: the round that the launcher
        names, which knows the checkpoints of all nodes. It counts unless the others play already."""
        hellos, neighbours = [self._up_to_date(hello) for hello in self._transport.hellos()], self._transport.needed()
        start = starting_point(own, hellos, neighbours)
        if start.basis is Basis.PLAYED:
            return start
        if launched_at is not None:
            return StartingPoint(launched_at, launched_at, Basis.COMMON)
        playing = [hello.round + 1 for hello in hellos if hello.running]
        if playing:
            log.warning(
                "%d of %d neighbours play, up to round %d: no majority, going on after round %d, %s",
                len(playing), neighbours, max(playing), start.round, start.basis, extra={"event": "unconfirmed"},
            )  # fmt: skip
        elif start.basis is not Basis.COMMON and (start.round or len(own) > 1):
            text = "no checkpoint of a round that all neighbours have: going on after round %d, %s"
            log.warning(text, start.round, start.basis, extra={"event": "no-common-round"})
        return start

    def _up_to_date(self, hello: Hello) -> Hello:
        """A hello is as old as its link. What the peer has sent since then shows that it is in a later round."""
        seen = self._step.roster[NodeName(hello.name)].seen
        return replace(hello, round=max(hello.round, seen - 1))
