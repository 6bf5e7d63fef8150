"""Slow is not silent: a message that comes over a thin link, byte by byte, while its receiver waits."""

from collections.abc import Callable, Mapping

from p2p_tally.ids import NodeName

# Bytes that have come over a peer's link, of messages that are not whole yet too; None where nobody counts them.
Received = Callable[[NodeName], int | None]


class Trickle:
    """Whether what a peer sends is on its way, from one look to the next.

    The bytes of a message that is not whole yet are a sign of life. Whole messages are one only with `any_message`,
    where run follows run on a link: for a ballot, others that came prove that it was not behind them.
    """

    def __init__(self, received: Received, messages: Mapping[NodeName, int], any_message: bool) -> None:
        self._received, self._messages, self._any_message = received, messages, any_message
        self._before: dict[NodeName, tuple[int | None, int]] = {}

    def goes_on(self, peer: NodeName) -> bool:
        received, messages = self._received(peer), self._messages.get(peer, 0)
        before, messages_before = self._before.get(peer, (None, 0))
        self._before[peer] = received, messages
        came = received is not None and before is not None and received > before
        return came and (self._any_message or messages == messages_before)
