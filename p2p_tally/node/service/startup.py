"""Before the first round: wait until the neighbours are there, and find the round to begin after."""

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
    """The start of one node. It ends when everybody is there, or is known not to come."""

    def __init__(
        self,
        transport: WebSocketTransport,
        topology: Topology,
        step: Step,
        position: Position,
        patience: Callable[[], float | None],
    ) -> None:
        """`patience`: what a peer that was there and is gone is given; None: it is waited for without end."""
        self._transport = transport
        self._topology = topology
        self._step = step
        self._position = position
        self._patience = patience
        self._absent: set[NodeName] = set()  # will not come: somebody who knows has said so

    def will_not_come(self, peer: NodeName) -> None:
        self._absent.add(peer)
        self._transport.look_again()

    async def wait(self) -> None:
        """Wait until every neighbour has said hello, and log whom this node waits for.

        Where some are playing already, this node is the one that is late: the rest are given a moment only. Of those
        that have begun while it waits for others one may be gone again, at its end or dead: it was there. One that
        was there, for this node or for others, and is gone before it has begun is given some time.
        """
        transport, clock = self._transport, asyncio.get_running_loop().time
        wait = StartWait(clock())
        while not transport.closing and wait.goes_on(clock(), self._missing(), self._given(), self._is_late()):
            if wait.reminder_is_due(clock()):
                for peer in in_order(self._missing()):
                    self._log_waiting_for(peer)
            await transport.change(wait.next_check)
        if not transport.closing:
            self._begin_without(transport.not_up().intersection(self._absent | wait.given_up))
        transport.play()

    def _missing(self) -> set[NodeName]:
        return self._transport.not_up().difference(self._step.roster.playing, self._absent)

    def _given(self) -> dict[NodeName, float]:
        """Seconds for those who were there."""
        patience = self._patience()
        if patience is None:
            return {}
        met = {name: patience for name, peer in self._transport.peers.items() if peer.met}
        # If they live, the next attempt to reach them may be that far away.
        return dict.fromkeys(self._met_by_others(), patience + LAST_DELAY) | met

    def _met_by_others(self) -> set[NodeName]:
        """Those who play have met all their neighbours."""
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
