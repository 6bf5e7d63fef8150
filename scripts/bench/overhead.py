"""What the messages cost: 8 daemons that vote, compared with 8 that do the same computation and send nothing.

Both train the small CNN on images of 32 x 32; `no-consensus` takes the same step on the same probes without votes. Both
federations are started, and then run in turns of one second, one stopped while the other runs: a machine that is slow
for a while is slow for both. Each federation has a clock that does not count the time in which it is stopped. A round
ends when its slowest daemon has finished it. Start-up is not measured.

    python scripts/bench/overhead.py [--nodes 8] [--rounds 60] [--repeat 3]

With --viewers both federations vote, and one of them has a live page that this many viewers follow:

    python scripts/bench/overhead.py --viewers 50

With --tls both federations vote, one over plain links and one over links that are TLS by pinned keys:

    python scripts/bench/overhead.py --tls

Besides the seconds of a round it compares processor seconds: those of the daemons, of the launcher and of the page that
it serves, without the viewers. They hardly depend on what else the machine does.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

try:
    import psutil
except ModuleNotFoundError as error:
    sys.exit(f"overhead.py needs {error.name}: scripts/setup dev installs it")

from p2p_tally.config import Federation, ServiceSettings, write_options
from p2p_tally.ids import ranked_names
from p2p_tally.page.book import Book
from p2p_tally.runner.launch.launcher import launch
from p2p_tally.runner.page.gather import Gatherer
from p2p_tally.runner.page.server import PageServer
from p2p_tally.runner.runs.run import RoundLine
from p2p_tally.trust.identity import make_identity

WANTED = 1.10
WANTED_VIEWED = 1.02
METHODS = ("no-consensus", "tally")
REPORT_EVERY = 5  # rounds; each daemon then looks at 64 test images
TURN_SECONDS = 1.0


def write_images(path: Path, nodes: int) -> None:
    """Noise with classes that can be learned; the measured time does not depend on the data."""
    generator = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 200 * nodes), ("test", 64)):
        labels = generator.integers(10, size=count)
        images = generator.standard_normal((count, 3, 32, 32), dtype=np.float32)
        images[:, 0, :10, 0] += labels[:, None]
        arrays |= {f"x_{split}": images, f"y_{split}": labels}
    np.savez(path, **arrays)


def run_federation(federation: Federation, out: Path, told: Connection, page: Path | None) -> None:
    """Launch it, and send (round, when all daemons had finished it). `page`: a file for the address of its page."""
    settings = ServiceSettings(out=out, device="cpu", checkpoint_every=0)

    def tell(line: RoundLine) -> None:
        told.send((line.round, time.monotonic()))

    if page is None:
        launch(federation, settings, tell)
    else:
        book = Book()
        gatherer = Gatherer(book)
        with PageServer(book, before_close=gatherer.stop) as server:
            page.write_text(str(server.address))
            follow = partial(server.call, gatherer.follow)
            launch(federation, settings, tell, on_admin=lambda name, address: follow(address, name))
    told.close()


async def _view(address: str, viewers: int) -> None:
    async def one(session: aiohttp.ClientSession) -> None:
        async with session.get(f"http://{address}/events") as answer:
            async for _ in answer.content.iter_any():
                pass

    limits = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=limits, connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(one(session) for _ in range(viewers)), return_exceptions=True)


def view(address: str, viewers: int) -> None:
    """Follow a page until it ends. They are no part of what is measured, so they give way to all others."""
    os.nice(10)
    asyncio.run(_view(address, viewers))


def run_nodes(federation: Federation, out: Path, told: Connection, secure: bool) -> None:
    """As `run_federation`, with daemons that are started one by one, as on machines of their own."""
    names = ranked_names(federation.nodes)
    keys = {name: make_identity(out / "homes" / name) for name in names}
    listeners = {name: socket.create_server(("127.0.0.1", 0)) for name in names}
    write_options(out / "federation.toml", federation, ServiceSettings(device="cpu", checkpoint_every=0))
    daemons = []
    for rank, name in enumerate(names):
        ports = {peer: listener.getsockname()[1] for peer, listener in listeners.items() if peer != name}
        pins = {peer: f"#{keys[peer].fingerprint}" if secure else "" for peer in ports}
        peers = ",".join(f"{peer}=127.0.0.1:{port}{pins[peer]}" for peer, port in ports.items())
        options = {"config": out / "federation.toml", "name": name, "rank": rank, "peers": peers, "out": out / name}
        options |= {"home": out / "homes" / name, "listen-fd": listeners[name].fileno()}
        command = [sys.executable, "-m", "p2p_tally", "node", "--report"]
        command += [part for option, value in options.items() for part in (f"--{option}", str(value))]
        log = (out / f"{name}.log").open("w")
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "text": True}
        daemons.append(subprocess.Popen(command, pass_fds=[listeners[name].fileno()], **pipes))
        (out / f"{name}.pid").write_text(str(daemons[-1].pid))
    rounds = [r for r in range(1, federation.rounds + 1) if r % federation.eval_every == 0]
    for round in rounds:
        for daemon in daemons:
            while json.loads(daemon.stdout.readline() or "{}").get("round", federation.rounds) != round:
                if daemon.poll() is not None:
                    sys.exit(f"a daemon ended before round {round}")
        told.send((round, time.monotonic()))
    for daemon in daemons:
        daemon.communicate()
    told.close()


class Running:
    """A federation of daemons that can be stopped and continued."""

    def __init__(self, federation: Federation, out: Path, page: Path | None = None, secure: bool | None = None) -> None:
        """`page`: the file for the address of its live page; None: it has no page. `secure`: whether its links are TLS;
        None: as `launch` does it."""
        self.out = out
        self.told, theirs = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("spawn")
        out.mkdir(parents=True, exist_ok=True)
        self.process = (
            context.Process(target=run_federation, args=(federation, out, theirs, page))
            if secure is None
            else context.Process(target=run_nodes, args=(federation, out, theirs, secure))
        )
        self.process.start()
        theirs.close()
        self.finished: list[tuple[int, float]] = []  # round, when
        self.ran: list[tuple[float, float]] = []  # from, to
        self.used: list[tuple[int, float]] = []  # at the end of a turn: the last round, processor seconds so far

    def signal(self, number: signal.Signals) -> None:
        for path in self.out.glob("*.pid"):
            with contextlib.suppress(OSError, ValueError):  # it has just ended, or is being written
                os.kill(int(path.read_text()), number)

    def listen(self, seconds: float) -> bool:
        """Receive finished rounds for this time; False at the end of the run."""
        end = time.monotonic() + seconds
        while self.told.poll(max(0.0, end - time.monotonic())):
            try:
                self.finished.append(self.told.recv())
            except EOFError:
                return False
        return True

    def take_turn(self) -> bool:
        began = time.monotonic()
        self.signal(signal.SIGCONT)
        goes_on = self.listen(TURN_SECONDS)
        self.signal(signal.SIGSTOP)
        self.ran.append((began, time.monotonic()))
        with contextlib.suppress(psutil.NoSuchProcess):  # its end is not counted
            if goes_on and self.finished:
                self.used.append((self.finished[-1][0], self._processor_seconds()))
        return goes_on

    def _processor_seconds(self) -> float:
        launcher = psutil.Process(self.process.pid)
        times = [process.cpu_times() for process in (launcher, *launcher.children(recursive=True))]
        return sum(time.user + time.system for time in times)

    def processor_seconds_a_round(self) -> float:
        """From the end of the first turn to the last sample in which all daemons were there."""
        (first, before), (last, after) = self.used[0], max(self.used)
        return (after - before) / (last - first)

    def seconds_a_round(self) -> float:
        """By its own clock, from the first round finished in a turn to the last."""
        own = [(round, self._clock(when)) for round, when in self.finished if when >= self.ran[0][0]]
        (first, begin), (last, end) = own[0], own[-1]
        return (end - begin) / (last - first)

    def _clock(self, when: float) -> float:
        return sum(max(0.0, min(when, stop) - start) for start, stop in self.ran)


def measure_methods(common: Federation, folder: Path) -> dict[str, Running]:
    """The federation of each method, finished."""
    return in_turns(
        {method: Running(common.model_copy(update={"method": method}), folder / method) for method in METHODS}
    )


def measure_viewers(common: Federation, folder: Path, viewers: int) -> dict[str, Running]:
    """A federation without a page, and one whose page has viewers, finished."""
    folder.mkdir()
    page = folder / "page"
    running = {"unseen": Running(common, folder / "unseen"), "viewed": Running(common, folder / "viewed", page)}
    while not page.is_file() or not page.read_text():
        time.sleep(0.05)
    watching = multiprocessing.get_context("spawn").Process(target=view, args=(page.read_text(), viewers))
    watching.start()
    try:
        return in_turns(running)
    finally:
        watching.join()


def measure_tls(common: Federation, folder: Path) -> dict[str, Running]:
    """A federation with plain links, and one with TLS, finished."""
    return in_turns({name: Running(common, folder / name, secure=name == "tls") for name in ("plain", "tls")})


def in_turns(running: dict[str, Running]) -> dict[str, Running]:
    """The same federations, finished."""
    try:
        while not all(federation.finished for federation in running.values()):  # start-up: together
            for federation in running.values():
                if not federation.listen(0.2):
                    raise SystemExit("a federation ended before its first round; more --rounds")
        for federation in running.values():
            federation.signal(signal.SIGSTOP)
        going = list(running.values())
        while going:
            going = [federation for federation in going if federation.take_turn()]
        return running
    finally:
        for federation in running.values():
            federation.signal(signal.SIGCONT)  # no process stays stopped
            federation.process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--topology", default="mesh")
    parser.add_argument("--viewers", type=int, default=0, help="viewers of the live page; 0: measure the messages")
    parser.add_argument("--tls", action="store_true", help="measure links that are TLS against plain ones")
    arguments = parser.parse_args()
    ratios: dict[str, list[float]] = {"seconds": [], "processor seconds": []}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "images.npz"
        write_images(data, arguments.nodes)
        common = Federation(
            nodes=arguments.nodes,
            topology=arguments.topology,
            rounds=arguments.rounds,
            warmup=0,
            merge_every=0,
            batch=32,
            data=f"npz:{data}",
            model="cnn",
            partition="iid",
            eval_every=REPORT_EVERY,
        )
        for number in range(arguments.repeat):
            place = Path(folder) / str(number)
            if arguments.tls:
                finished = measure_tls(common, place)
            elif arguments.viewers:
                finished = measure_viewers(common, place, arguments.viewers)
            else:
                finished = measure_methods(common, place)
            base, other = finished
            for what, of in (
                ("seconds", Running.seconds_a_round),
                ("processor seconds", Running.processor_seconds_a_round),
            ):
                values = {name: of(federation) for name, federation in finished.items()}
                ratios[what].append(values[other] / values[base])
                each = ", ".join(f"{name} {1e3 * value:.0f} ms" for name, value in values.items())
                print(f"{number + 1}: {what} of a round: {each}, ratio {ratios[what][-1]:.3f}", flush=True)
    wanted = WANTED_VIEWED if arguments.viewers else WANTED
    whose = f", {arguments.viewers} viewers" if arguments.viewers else ""
    found = ", ".join(f"{what} median {statistics.median(values):.3f}" for what, values in ratios.items())
    print(
        f"{other} / {base}: {found} ({arguments.nodes} daemons{whose}, "
        f"{arguments.topology}, CNN on 32 x 32, {arguments.rounds} rounds; at most {wanted:.2f} wanted)"
    )


if __name__ == "__main__":
    main()
