"""A daemon as a process: signals, log, event loop, and the pipe from its launcher."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from typing import Any

from p2p_tally.ids import NodeName
from p2p_tally.node.service import logs
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.page.book import Book
from p2p_tally.page.problems import ProblemHandler

log = logging.getLogger(__name__)


def run_daemon(daemon: Daemon, launched: bool) -> dict[str, Any]:
    """Run a daemon in this process. `launched`: standard input is a pipe from its launcher."""

    async def main() -> dict[str, Any]:
        shown = [] if daemon.admin is None else [_problems_of(daemon.admin.feed.book)]
        logs.configure(daemon.name, lambda: daemon.node.position.round, daemon.settings.log_format, *shown)
        _obey_signals(daemon)
        watch = asyncio.create_task(_watch_launcher(daemon)) if launched else None
        try:
            return await daemon.run()
        finally:
            if watch is not None:
                watch.cancel()

    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return asyncio.run(main())
    return uvloop.run(main())


def _problems_of(book: Book) -> ProblemHandler:
    """Puts warnings of any thread into the book, which belongs to the thread of the event loop."""
    loop = asyncio.get_running_loop()

    def tell(entry: dict[str, Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the page with it
            loop.call_soon_threadsafe(book.add_problem, entry)

    return ProblemHandler(tell)


def _obey_signals(daemon: Daemon) -> None:
    """The first signal asks the daemon to stop, the second ends the process."""

    def stop() -> None:
        if daemon.node.position.stopping:
            os._exit(130)
        daemon.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


async def _watch_launcher(daemon: Daemon) -> None:
    """The launcher writes which nodes have ended, one line of JSON for each. If the pipe closes, the launcher itself
    has ended: then this node must end too."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        daemon.gone(NodeName(json.loads(line)["gone"]))
    log.warning("the launcher is gone", extra={"event": "orphaned"})
    os.kill(os.getpid(), signal.SIGTERM)
