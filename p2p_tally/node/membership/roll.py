"""The members' list of one node while it runs. Each change is saved and synced before anybody hears of it.

Who orders changes adds them here; all others add what they are sent, after checking it. A request waits here until it
is in the list, or the list shows that it cannot come in any more.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from p2p_tally.ids import NodeName
from p2p_tally.node.membership.home import Home
from p2p_tally.trust.chain import Chain, keys_of
from p2p_tally.trust.changes import Change, Details, Kind, Request
from p2p_tally.trust.members import Members

log = logging.getLogger(__name__)

# Called with the members before and after.
Listener = Callable[[Members, Members], None]


class Roll:
    """One node's list, and the key by which the list knows this node."""

    def __init__(self, home: Home, name: NodeName, chain: Chain, next_round: Callable[[Kind], int]) -> None:
        """`next_round`: where this node orders changes, the round from which the next one is to hold."""
        self.name = name
        self.chain = chain
        self.identity = home.member_identity(chain.members, name)
        self._home = home
        self._next_round = next_round
        self._listeners: list[Listener] = []
        self._next_change = asyncio.Event()

    @property
    def members(self) -> Members:
        return self.chain.members

    @property
    def orders(self) -> bool:
        """Whether this node orders changes."""
        return self.members.orderer == self.name

    def listen(self, listener: Listener) -> None:
        """Call this function whenever the list has changed."""
        self._listeners.append(listener)

    async def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until the list fulfils a condition, at most so long. Returns whether it does."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    await self._next_change.wait()
        return condition()

    # --- changes that this node asks for

    def request(self, kind: Kind, name: NodeName, details: Details) -> Request:
        """A request of this node, checked: a TrustError if it can not come into the list as it is now."""
        request = self.chain.request(self.identity, self.name, kind, name, details)
        self.check(request)
        return request

    def check(self, request: Request) -> None:
        """Raise a TrustError unless this request could be the next change."""
        self.members.check_request(request)

    def order(self, request: Request) -> None:
        """Put a request into the list. Only who orders changes may, or the successor its own take-over."""
        self.check(request)
        self._adopt(self.chain.ordered(self.identity, request, self._next_round(request.kind)))

    # --- changes of others

    def receive(self, first: int, lines: Iterable[str | bytes]) -> int:
        """Changes from number `first` on, as another member has them. Returns how many these were."""
        changes = [Change.read(line) for line in lines]
        self._adopt(self.chain.reconciled(first, changes))
        return len(changes)

    def has(self, number: int, digest: str) -> bool:
        """Whether this list has this change."""
        return 0 < number <= len(self.chain.changes) and self.chain.changes[number - 1].digest == digest

    def keys(self, name: NodeName) -> list[bytes]:
        """All keys that a member has had, the newest last."""
        return keys_of(self.chain, name)

    def former_key(self, name: NodeName) -> bytes | None:
        """The last key of somebody who was a member and is none any more."""
        if name not in self.members.left or name in self.members.current:
            return None
        return self.keys(name)[-1]

    def lines(self, first: int, most: int, last: int | None = None) -> bytes:
        """Changes from number `first` on, up to `last`, a line each, in at most so many bytes."""
        found = b""
        for change in self.chain.changes[max(0, first - 1) : last]:
            line = change.line().encode() + b"\n"
            if len(found) + len(line) > most:
                break
            found += line
        return found

    def _adopt(self, chain: Chain) -> None:
        before = self.members
        if chain.members.digest == before.digest:
            return
        self._home.save_chain(chain)
        self.chain = chain
        self.identity = self._home.member_identity(chain.members, self.name)
        for change in chain.changes[_same(before, chain) :]:
            log.info("%s", describe(change), extra={"event": "members-changed", "peer": change.request.name})
        for listener in self._listeners:
            listener(before, chain.members)
        self._next_change.set()
        self._next_change = asyncio.Event()


def _same(before: Members, chain: Chain) -> int:
    """How many changes are not news."""
    known = before.number
    return known if 0 < known <= len(chain.changes) and chain.changes[known - 1].digest == before.digest else 0


def describe(change: Change) -> str:
    """A change as a person says it."""
    request = change.request
    by = "" if request.by == request.name else f", asked for by {request.by}"
    return f"change {change.number}: {request.kind} of {request.name} from round {change.round} on{by}"
