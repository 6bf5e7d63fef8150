"""A daemon that is killed at a chosen moment: python killed_node.py MOMENT ROUND <options of p2p-tally node>.

SIGKILL from inside, at an exact place in the round, is what kill -9 from outside is at an unlucky instant.
"""

import os
import signal
import sys
from typing import Any

from p2p_tally import cli
from p2p_tally.node.merges.exchange import MergeExchange
from p2p_tally.node.node import Node


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(moment: str, at: int) -> None:
    poll, merge, send = Node._poll, Node._merge, MergeExchange._send

    async def poll_or_die(self: Node, r: int, own: Any) -> Any:
        if r == at and moment == "before-vote":
            die()
        return await poll(self, r, own)

    async def merge_or_die(self: Node, r: int) -> bool:
        if r == at and moment == "before-merge":
            die()
        return await merge(self, r)

    async def send_or_die(self: MergeExchange, round: int, stage: Any, part: int, data: Any) -> None:
        if round == at and moment == "inside-merge":
            # One peer gets its run, the others do not.
            await send(self, round, stage, part, list(data)[:1])
            await self.outbox.transport.close()
            die()
        await send(self, round, stage, part, data)

    Node._poll, Node._merge, MergeExchange._send = poll_or_die, merge_or_die, send_or_die  # type: ignore[method-assign]


moment, at = sys.argv[1], int(sys.argv[2])
del sys.argv[1:3]
arm(moment, at)
cli.main()
