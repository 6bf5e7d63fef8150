"""Keeps trying to make the link to a peer: at once when it is wanted, then less and less often."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import aiohttp

from p2p_tally.errors import HandshakeError, PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.addresses import why_unreachable
from p2p_tally.node.links.handshake import LinkedAlready
from p2p_tally.node.links.link import REFUSED_DELAY, backoff
from p2p_tally.node.links.state import LinkState


class Dialler:
    """Dials the peers of one node. It knows when to dial, and nothing of how."""

    def __init__(
        self,
        dial: Callable[[NodeName, LinkState], Awaitable[None]],
        patience: Callable[[NodeName, LinkState], float | None],
        refused: Callable[[NodeName | None, PeerError], None],
        failed: Callable[[NodeName, LinkState], None],
        generator: random.Random,
    ) -> None:
        """`dial`: makes a link and serves it until it ends. `patience`: for how many seconds to leave it to the other
        side first; None: until something changes. `failed` is called after each attempt that failed."""
        self._dial = dial
        self._patience = patience
        self._refused = refused
        self._failed = failed
        self._generator = generator

    async def keep(self, peer: NodeName, state: LinkState, closing: asyncio.Event) -> None:
        """Make the link, again and again, for as long as it is wanted."""
        state.start_dialling()
        while not closing.is_set() and state.wanted:
            delay, failed = None, True
            state.watch_wanted()
            if await self._other_side_moves(state, self._patience(peer, state)):
                continue
            try:
                await self._dial(peer, state)
            except LinkedAlready:  # it is up here, too, or will be in a moment
                failed = False
                state.linked_there()
            except HandshakeError as error:
                delay = REFUSED_DELAY
                self._refused(peer, error)
            except PeerError as error:
                self._refused(peer, error)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                state.unreachable(why_unreachable(error))
            if state.state not in ("idle", "up") and not state.wanted_changed.is_set():
                delay = backoff(state.attempts, self._generator) if delay is None else delay
                if failed:
                    self._failed(peer, state)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await state.wanted_changed.wait()
        state.stop_dialling()

    async def _other_side_moves(self, state: LinkState, seconds: float | None) -> bool:
        """Whether something has changed while this node left it to the other."""
        if seconds == 0.0:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await state.stirred.wait()
        return state.stirred.is_set()
