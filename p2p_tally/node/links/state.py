"""What a node knows of its link to one neighbour: whether it is wanted, its state, and its bytes."""

import asyncio

from p2p_tally.node.links.addresses import Address
from p2p_tally.node.links.sockets import KernelCount

# idle: not needed now. opening: being made. refused: by the handshake, at either end.
STATES = ("idle", "opening", "up", "down", "refused")


class LinkState:
    """The link to one neighbour, over all its connections."""

    def __init__(self, address: Address | None) -> None:
        self.address = address  # None: nobody can dial it
        self.state = "down"
        self.detail = ""  # why it is not up
        self.attempts = 0  # failed attempts to connect since it was last up
        self.wanted = True
        self.dialling = False  # a task tries to make it
        self.met = False  # it has been up before
        self.wanted_changed = asyncio.Event()  # set when `want` is called, cleared by `watch_wanted`
        self.stirred = asyncio.Event()  # set by all of the above and below, cleared by `watch_wanted`
        self.deciding = asyncio.Lock()  # held while one of several connections becomes the link
        self.said_linked = False  # the peer has said that there is a link, when this node had none
        self.kernel = KernelCount()  # bytes of the connections that have ended

    # --- whether it is wanted

    def want(self, wanted: bool, linked: bool) -> None:
        """From now on this link is needed, or not. `linked`: whether it is up now."""
        self.wanted = wanted
        self.nudge()
        if not linked:
            self.state, self.detail = "opening" if wanted else "idle", ""

    def watch_wanted(self) -> None:
        self.wanted_changed.clear()
        self.stirred.clear()

    def nudge(self) -> None:
        """Something has changed: try at once, if it is wanted and not up."""
        self.wanted_changed.set()
        self.stirred.set()

    def move_to(self, address: Address | None) -> None:
        self.address = address
        self.nudge()

    # --- making it

    def start_dialling(self) -> None:
        self.dialling = True

    def stop_dialling(self) -> None:
        self.dialling = False

    def attempt_failed(self) -> bool:
        """Returns whether this was the first attempt since the link was up."""
        if self.state == "opening":
            self.state = "down"
        self.attempts += 1
        return self.attempts == 1

    def unreachable(self, why: str) -> None:
        self.detail = why

    def refused(self, why: str) -> None:
        self.state, self.detail = "refused", why

    def linked_there(self) -> None:
        """The peer says that there is a link already."""
        self.said_linked = True

    # --- while it is up

    def up(self) -> None:
        self.state, self.detail, self.attempts, self.met = "up", "", 0, True
        self.said_linked = False
        self.stirred.set()

    def carried(self, count: KernelCount) -> None:
        """A connection has ended; `count`: its bytes."""
        self.kernel += count

    def ended(self, *, idle: bool) -> None:
        """`idle`: it ended because it was not needed."""
        self.stirred.set()
        if not self.wanted:
            self.state = "idle"
        else:
            self.state = "opening" if idle else "down"
