"""A daemon that is killed at a chosen moment: python killed_node.py MOMENT ROUND <options of p2p-tally node>.

SIGKILL from inside, at an exact place in the round, is what kill -9 from outside is at an unlucky instant.
"""

import os
import signal
import sys
from unittest.mock import patch

from p2p_tally import cli
from p2p_tally.ids import NodeName
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.position import Position
from p2p_tally.protocol.messages import Message, Shard


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(moment: str, at: int) -> None:
    """`before-vote`, `before-merge`: as that phase begins. `inside-merge`: one peer gets its run, the others do not."""
    enter, stream = Position.enter, Outbox.stream
    phase = moment.removeprefix("before-")

    def enter_or_die(self: Position, began: str) -> None:
        if (self.round + 1, began) == (at, phase):
            die()
        enter(self, began)

    async def stream_or_die(self: Outbox, peer: NodeName, message: Message, frame: bytes) -> None:
        await stream(self, peer, message, frame)
        if moment == "inside-merge" and isinstance(message, Shard) and message.round == at:
            await self.transport.close()
            die()

    patch.object(Position, "enter", enter_or_die).start()
    patch.object(Outbox, "stream", stream_or_die).start()


moment, at = sys.argv[1], int(sys.argv[2])
del sys.argv[1:3]
arm(moment, at)
cli.main()
