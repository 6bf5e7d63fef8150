"""The links of one node as they are now: which are up, and what has gone over them. Who makes them is another's."""

from collections.abc import Mapping

from p2p_tally.ids import NodeName, in_order
from p2p_tally.node.links.addresses import Address
from p2p_tally.node.links.link import Link
from p2p_tally.node.links.sockets import KernelCount
from p2p_tally.node.links.state import LinkState
from p2p_tally.node.links.transport import dials
from p2p_tally.protocol.messages import Hello


class LinkTable:
    """`links`: those that are up. `peers`: all neighbours, with the state of each link."""

    def __init__(self, name: NodeName, peers: Mapping[NodeName, Address | None]) -> None:
        self.name = name
        self.links: dict[NodeName, Link] = {}
        self.peers = {peer: LinkState(address) for peer, address in peers.items()}
        self._former = KernelCount()  # bytes of peers that were removed

    def send(self, peer: NodeName, frame: bytes) -> bool:
        link = self.links.get(peer)
        return link is not None and link.send(frame)

    async def drained(self, peer: NodeName) -> None:
        link = self.links.get(peer)
        if link is not None:
            await link.drained()

    def received(self, peer: NodeName) -> int | None:
        link = self.links.get(peer)
        count = None if link is None else link.meter.count()
        return None if count is None else count.received

    def open_links(self) -> list[NodeName]:
        return in_order(self.links)

    def masks(self, peer: NodeName) -> bool:
        return self.links[peer].dialled if peer in self.links else dials(self.name, peer)

    def direct(self, peer: NodeName) -> Link | None:
        """The link to this peer, if it has a connection of its own."""
        link = self.links.get(peer)
        return link if link is not None and link.direct else None

    def carriers(self) -> list[NodeName]:
        """Who could carry a connection to somebody else, in order."""
        return [peer for peer in self.open_links() if self.links[peer].direct]

    def not_up(self) -> set[NodeName]:
        """Neighbours whose links are needed and not up."""
        return {name for name, peer in self.peers.items() if peer.state not in ("up", "idle")}

    def needed(self) -> int:
        """The number of neighbours whose links are needed, up or not."""
        return sum(peer.state != "idle" for peer in self.peers.values())

    def hellos(self) -> list[Hello]:
        """The hellos of the neighbours with an open link."""
        return [link.hello for link in self.links.values()]

    def kernel_total(self) -> KernelCount:
        """The kernel's count over all links, including ended ones."""
        total = self._former
        for name, peer in self.peers.items():
            live = self.links[name].meter.count() if name in self.links else None
            total += peer.kernel + (live or KernelCount())
        return total
