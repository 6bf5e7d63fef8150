"""Before the first round: wait until the neighbours are there."""

import asyncio
import logging
from collections.abc import Callable, Collection

from p2p_tally.ids import NodeName, in_order
from p2p_tally.node.links.link import LAST_DELAY
from p2p_tally.node.links.websocket import WebSocketTransport
from p2p_tally.node.position import Position
from p2p_tally.node.step.step import Step
from p2p_tally.protocol.handshake import are_playing
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
    ) -> None:
        """`timeout`: seconds to wait for a peer that was there and has gone; None: no limit."""
        self._transport = transport
        self._topology = topology
        self._step = step
        self._position = position
        self._timeout = timeout
        self._absent: set[NodeName] = set()  # will not come, as the launcher has said

    def will_not_come(self, peer: NodeName) -> None:
        self._absent.add(peer)
        self._transport.notify_change()

    async def wait(self) -> None:
        """Wait until every neighbour has sent a hello, and log for whom this node waits.

        If the others play already, this node is late: it waits only a moment for the rest. A neighbour that has begun
        to play is not waited for, even if it has gone again since. A neighbour that was seen, by this node or by
        others, and has gone before it began to play, gets the usual timeout.
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
        return self._transport.not_up().difference(self._step.roster.playing, self._absent)

    def _timeouts(self) -> dict[NodeName, float]:
        """Seconds to wait, for the peers that were there."""
        timeout = self._timeout()
        if timeout is None:
            return {}
        met = {name: timeout for name, peer in self._transport.peers.items() if peer.met}
        # This node has not met these. If they are alive, the next attempt to reach them may take this much longer.
        return dict.fromkeys(self._met_by_others(), timeout + LAST_DELAY) | met

    def _met_by_others(self) -> set[NodeName]:
        """The neighbours of all peers that play: before a peer plays it has met its neighbours."""
        round = self._position.round + 1
        playing = self._step.roster.playing
        return {NodeName(peer) for name in playing for peer in self._topology.neighbours(name, round)}

    def _is_late(self) -> bool:
        return are_playing(self._transport.hellos())

    def _begin_without(self, peers: Collection[NodeName]) -> None:
        for peer in in_order(peers):
            log.warning("it is gone: beginning without it", extra={"event": "begun-without", "peer": peer})
            self._step.link_down(peer)

    def _log_waiting_for(self, name: NodeName) -> None:
        peer = self._transport.peers[name]
        where = f" at {peer.address}" if str(peer.address) != name else ""
        why = f" ({peer.detail})" if peer.detail else ""
        log.info("waiting for %s%s%s", name, where, why, extra={"event": "waiting", "peer": name})
