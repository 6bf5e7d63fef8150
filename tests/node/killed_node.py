"""A daemon that is killed at a chosen moment: a process of its own, forked from one that has loaded torch.

SIGKILL from inside, at an exact place in the round, is what kill -9 from outside is at an unlucky instant.
"""

import multiprocessing
import os
import signal
import socket
import sys
from pathlib import Path
from unittest.mock import patch

from p2p_tally import cli
from p2p_tally.ids import NodeName
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.position import Position
from p2p_tally.protocol.messages import Message, Shard
from p2p_tally.runner.launch.nursery import LOADED

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(list(LOADED))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(moment: str, at: int) -> None:
    """`before-vote`, `before-merge`: as that phase begins. `inside-merge`: one peer gets its run, the others do not.
    `asked-to-stop`: SIGTERM, while it trains."""
    enter, stream = Position.enter, Outbox.stream
    phase = moment.removeprefix("before-")

    def enter_or_die(self: Position, began: str) -> None:
        if (self.round + 1, began) == (at, phase):
            die()
        if (self.round + 1, began, moment) == (at, "train", "asked-to-stop"):
            os.kill(os.getpid(), signal.SIGTERM)
        enter(self, began)

    async def stream_or_die(self: Outbox, peer: NodeName, message: Message) -> None:
        await stream(self, peer, message)
        if moment == "inside-merge" and isinstance(message, Shard) and message.round == at:
            await self.transport.close()
            die()

    patch.object(Position, "enter", enter_or_die).start()
    patch.object(Outbox, "stream", stream_or_die).start()


def play(moment: str | None, at: int, arguments: list[str], listener: socket.socket, out: Path, log: Path) -> None:
    """In the new process: p2p-tally with these arguments, on an open socket."""
    for path, stream in ((out, 1), (log, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    if moment is not None:
        arm(moment, at)
    sys.argv = ["p2p-tally", *arguments, f"--listen-fd={listener.detach()}"]
    cli.main()
