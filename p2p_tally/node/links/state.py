"""What a node knows of its link to one neighbour: whether it is wanted, how it is, and what it has carried."""

import asyncio

from p2p_tally.node.links.addresses import Address
from p2p_tally.node.links.sockets import KernelCount

# Idle: not needed now. Opening: on its way. Refused: by the handshake, at either end.
STATES = ("idle", "opening", "up", "down", "refused")


class LinkState:
    """The link to one neighbour, over all connections that it has had."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.state = "down"
        self.detail = ""  # why it is not up
        self.attempts = 0  # to make it, since it was last up
        self.wanted = True
        self.dialling = False  # a task is at it
        self.met = False  # there has been a link
        self.wish_changed = asyncio.Event()  # whether it is wanted, since `watch_wish`
        self.kernel = KernelCount()  # bytes of connections that have ended

    # --- whether it is wanted

    def want(self, wanted: bool, linked: bool) -> None:
        """From now on this link is needed, or not. `linked`: there is one at present."""
        self.wanted = wanted
        self.wish_changed.set()
        if not linked:
            self.state, self.detail = "opening" if wanted else "idle", ""

    def watch_wish(self) -> None:
        self.wish_changed.clear()

    # --- making it

    def start_dialling(self) -> None:
        self.dialling = True

    def stop_dialling(self) -> None:
        self.dialling = False

    def attempt_failed(self) -> bool:
        """Whether this was the first attempt since the link was up."""
        if self.state == "opening":
            self.state = "down"
        self.attempts += 1
        return self.attempts == 1

    def unreachable(self, why: str) -> None:
        self.detail = why

    def refused(self, why: str) -> None:
        self.state, self.detail = "refused", why

    # --- while there is one

    def up(self) -> None:
        self.state, self.detail, self.attempts, self.met = "up", "", 0, True

    def carried(self, count: KernelCount) -> None:
        """A connection has ended, and these were its bytes."""
        self.kernel += count

    def ended(self, *, idle: bool) -> None:
        """`idle`: it ended because it was not needed."""
        if not self.wanted:
            self.state = "idle"
        else:
            self.state = "opening" if idle else "down"
