"""A daemon inside somebody else's asyncio program: `async with p2p_tally.Daemon(...)`.

It is the daemon of `p2p-tally node` without the process around it: signals and logging stay the program's own.
"""

import asyncio
import socket
from types import TracebackType
from typing import Any, Self

from p2p_tally.config import DaemonSettings, Federation
from p2p_tally.learning.saved.file import ModelFile
from p2p_tally.learning.saved.loaded import TrainedModel
from p2p_tally.learning.saved.trusted import load_trusted
from p2p_tally.node.service import daemon as service
from p2p_tally.node.service.admin import status
from p2p_tally.node.service.recorder import OnLine


class Daemon:
    """One node of a federation over real sockets, for the length of an `async with` block.

    It trains, votes and merges while the program does other things in the same event loop. Leaving the block stops it:
    it finishes its round, writes a checkpoint, tells its neighbours and closes its sockets. Several can share
    a loop.
    """

    def __init__(
        self,
        federation: Federation,
        *,
        socket: socket.socket | None = None,
        on_line: OnLine | None = None,
        **options: Any,
    ) -> None:
        """`options` are those of `p2p-tally node`, as Python names: `name`, `listen`, `peers`, `rank`, `out` and so on.

        As there, `peers` are its neighbours; with a `topology` in the federation they are all the other members.
        `socket` is a socket of the program's own that listens already, at the address `listen`. `on_line` is called
        with each evaluated round, as a dictionary: the line that `NAME.jsonl` gets. Nothing is loaded and nothing
        starts before the block is entered.
        """
        self._federation = federation
        self._settings = DaemonSettings.parse(options)
        self._socket = socket
        self._on_line = on_line
        self._daemon: service.Daemon | None = None
        self._play: asyncio.Task[dict[str, Any]] | None = None

    async def __aenter__(self) -> Self:
        if self._daemon is not None:
            raise RuntimeError("this daemon has been started already; make another one")
        self._daemon = await asyncio.to_thread(self._make)  # data and model take their time: the loop goes on meanwhile
        try:
            await self._daemon.start()
        except BaseException:
            await self._daemon.close()
            raise
        self._play = asyncio.create_task(self._run(self._daemon), name=f"p2p-tally {self._daemon.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        daemon, play = self._running(), self._play
        assert play is not None
        try:
            if not play.done():
                daemon.stop()
            await asyncio.wait({play})
        finally:  # also where the program is cancelled while it waits
            play.cancel()
            await asyncio.wait({play})
        if error is None:
            play.result()  # an error of the daemon's, unless one of the program's is on its way

    def _make(self) -> service.Daemon:
        return service.Daemon(
            self._federation,
            self._settings,
            membership="topology" in self._federation.model_fields_set,
            inherited=self._socket,
            on_line=self._on_line,
            keep_record=True,
        )

    async def _run(self, daemon: service.Daemon) -> dict[str, Any]:
        try:
            result = await daemon.play()
            if result["finished"]:
                await daemon.compute(daemon.keep_model)
            return result
        finally:
            await daemon.close()

    def _running(self) -> service.Daemon:
        if self._daemon is None:
            raise RuntimeError("the daemon has not been started; use it in an `async with` block")
        return self._daemon

    async def finished(self) -> dict[str, Any]:
        """Wait for the last round, or for a stop. Returns what `p2p-tally node --json` prints."""
        self._running()
        assert self._play is not None
        return await asyncio.shield(self._play)  # who gives up waiting does not stop the daemon

    def stop(self) -> None:
        """Ask it to end after this round, with a checkpoint. Wait for that with `finished()`."""
        self._running().stop()

    async def model(self) -> TrainedModel:
        """A copy of the model as it is now, ready for predictions: the module that `load` gives. Training goes on."""
        daemon, read = self._running(), self._running().learner.model_file
        # The learner's thread does one thing at a time, so the copy is of a moment between two steps.
        ended = self._play is not None and self._play.done()
        contents = read() if ended else await daemon.compute(read)
        file = ModelFile.parse(contents, f"the model of {daemon.name}")
        return load_trusted(file, daemon.task.federation, self._settings.rank or 0)

    def status(self) -> dict[str, Any]:
        """What the admin address shows at `/status`: round, phase, links, who is missing, accuracy, bytes."""
        daemon = self._running()
        return status(daemon.node, daemon.transport, daemon.metrics)

    @property
    def name(self) -> str:
        """Its name among its peers."""
        return self._running().name

    @property
    def round(self) -> int:
        """The last round finished."""
        return self._running().node.position.round

    @property
    def accuracy(self) -> float | None:
        """Per cent of the test set, when last evaluated; None before that."""
        share = self._running().metrics.accuracy
        return None if share is None else 100 * share
