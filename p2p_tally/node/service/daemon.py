"""One daemon: from its settings to a node over real sockets, with a clock, a disk, signals, and an admin address.

The only place that puts the parts of this folder together.
"""

import asyncio
import json
import logging
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from p2p_tally.config import DaemonSettings, Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import NodeName, digest, in_order, node_name
from p2p_tally.json_lines import LineFile, json_value
from p2p_tally.learning.graph import check_graph, make_topology
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.setup import Task, make_learner, pick_device, prepare
from p2p_tally.node.links.addresses import Address, parse_address, parse_peers
from p2p_tally.node.links.websocket import WebSocketTransport
from p2p_tally.node.node import Node
from p2p_tally.node.service import logs
from p2p_tally.node.service.admin import Admin
from p2p_tally.node.service.checkpoint import Checkpoints
from p2p_tally.node.service.metrics import Metrics
from p2p_tally.node.service.recorder import DaemonRecorder
from p2p_tally.protocol.deadlines import Deadlines
from p2p_tally.protocol.frames import VERSION
from p2p_tally.protocol.handshake import agreed_fields, fields_digest, starting_point
from p2p_tally.protocol.messages import Hello
from p2p_tally.topologies import Schedule, Topology

log = logging.getLogger(__name__)

# Name of the graph that is known only through what each node says of its neighbours.
NEIGHBOURS = "neighbours"


class Daemon:
    """A node and everything around it."""

    def __init__(
        self,
        federation: Federation,
        settings: DaemonSettings,
        *,
        membership: bool,
        resume_round: int | None = None,
        inherited: socket.socket | None = None,
    ) -> None:
        """`membership`: --peers are all members, and the neighbours follow from the topology.

        `resume_round` and `inherited` (a listening socket) are a launcher's, which knows all nodes.
        """
        self.settings = settings
        self.resume_round = resume_round
        self.listen = parse_address(settings.listen, "--listen")
        self._check_reach(self.listen, "--listen")
        self.peers = parse_peers(settings.peers)
        self.said: dict[NodeName, tuple[str, ...]] = dict.fromkeys(self.peers, ())  # neighbours' neighbours
        self.name = node_name(settings.name or str(self.listen))
        if self.name in self.peers:
            raise ConfigError(f"--peers {settings.peers}: {self.name} is this node itself")
        self.membership = membership
        members = in_order([self.name, *self.peers])
        if membership:
            if federation.nodes != len(members):
                federation = federation.model_copy(update={"nodes": len(members)})
            self.topology = make_topology(federation, members)
            neighbours = self.topology.union(federation.rounds).neighbors(self.name)
            self.addresses = {NodeName(peer): self.peers[NodeName(peer)] for peer in neighbours}
        else:
            if federation.hops != 1:
                raise ConfigError(
                    f"--hops {federation.hops}: accepted is 1 where a node knows only its neighbours; "
                    "with --topology, and all other members as --peers, votes can travel further"
                )
            check_graph(federation, None)
            federation = federation.model_copy(update={"topology": NEIGHBOURS})
            self.topology = _known_graph(self.name, dict.fromkeys(self.peers, ()))
            self.addresses = self.peers
        if settings.rank is not None and settings.rank >= federation.nodes:
            raise ConfigError(f"--rank {settings.rank}: accepted is 0 to {federation.nodes - 1}")
        if settings.rank is None and "," in federation.model:
            raise ConfigError(
                f"--model {federation.model}: a node holds one model; accepted is one, or with --rank I several, "
                "of which it takes its own"
            )
        self.task = self._prepare(federation)
        self.learner = self._learner()
        self.folder = settings.out or Path("runs") / file_name(self.name)
        self.fields = self._fields()
        self.checkpoints = Checkpoints(self.folder / "checkpoints" / file_name(self.name), fields_digest(self.fields))
        kept = self.checkpoints.rounds()
        if kept and not settings.resume:
            raise ConfigError(
                f"--out {self.folder}: holds checkpoints of an earlier run; add --resume, or name another folder"
            )
        self.kept_rounds = (0, *kept)
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="learner")
        self.transport = WebSocketTransport(
            self.name, self.listen, self.addresses, self._hello, random.Random(), inherited
        )
        self.recorder = DaemonRecorder(self.learner, self.checkpoints, self._checkpoint_every())
        self.recorder.wire = lambda: self.transport.kernel_total().wire_sent
        fixed = None if settings.barrier_timeout == "auto" else settings.barrier_timeout
        self.node = Node(
            self.name,
            self.learner,
            self.topology,
            self.transport,
            self.recorder,
            self._compute,
            clock=time.monotonic,
            deadlines=Deadlines(fixed, automatic=fixed is None),
            quorum=settings.quorum,
        )
        self.transport.limit_to(self.node.mailbox.limits)
        self.metrics = self.recorder.metrics = Metrics(self.node, self.transport)
        self.admin: Admin | None = None
        if settings.admin:
            self._check_reach(parse_address(settings.admin, "--admin"), "--admin")
            self.admin = Admin(parse_address(settings.admin, "--admin"), self.node, self.transport, self.metrics)

    def _check_reach(self, address: Address, flag: str) -> None:
        if not address.loopback and not self.settings.insecure:
            raise ConfigError(
                f"{flag} {address}: reachable from other machines, and nothing there is encrypted or authenticated; "
                "listen on 127.0.0.1, or add --insecure where the network itself is trusted"
            )

    def _prepare(self, federation: Federation) -> Task:
        torch.set_num_threads(1)
        cut = (
            federation
            if self.settings.rank is not None
            else federation.model_copy(update={"nodes": 1, "partition": "iid"})
        )
        task = prepare(cut, root=self.settings.data_root, download=self.settings.download)
        if cut is federation:
            return task
        kept = task.federation.model_copy(update={"nodes": federation.nodes, "partition": federation.partition})
        return Task(**{**vars(task), "federation": kept})

    def _learner(self) -> Learner:
        return make_learner(self.task, self.name, self.settings.rank or 0, pick_device(self.settings.device))

    def _fields(self) -> tuple[tuple[str, str], ...]:
        """What every neighbour must share with this node."""
        federation = self.task.federation
        values: dict[str, Any] = federation.agreed()
        if self.membership:
            values["members"] = digest(*(member.encode() for member in self.topology.members))[:16]
            graph = self.topology.union(federation.rounds)
            edges = sorted("\t".join(sorted(edge)) for edge in graph.edges)
            values["graph"] = digest(*(edge.encode() for edge in edges))[:16]
            if federation.merge_over == "ring" and self.topology.ring is not None:
                values["ring"] = digest(*(member.encode() for member in self.topology.ring))[:16]
        else:
            del values["nodes"], values["degree"]  # a node that knows only its neighbours does not know these
        values["classes"] = self.task.classes
        values["probe set"] = self.task.probes.digest()[:16]
        if federation.merge_every:
            values["parameters"] = f"{len(self.learner.parameters)} ({self.learner.parameters.schema[:16]})"
        return agreed_fields(values)

    def _hello(self) -> Hello:
        return Hello(
            version=VERSION,
            name=self.name,
            round=self.node.round,
            running=self.node.phase != "waiting",
            checkpoints=self.kept_rounds,
            neighbours=() if self.membership else tuple(in_order(self.addresses)),
            digest=fields_digest(self.fields),
            fields=self.fields,
        )

    def _checkpoint_every(self) -> int:
        every = self.settings.checkpoint_every
        return max(1, self.task.federation.rounds // 20) if every is None else every

    async def _compute(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """The learner's work, off the event loop: a node answers while it trains."""
        return await asyncio.get_running_loop().run_in_executor(self.worker, work, *arguments)

    async def run(self) -> dict[str, Any]:
        """Play to the end, or until told to stop; what came of it."""
        node, transport = self.node, self.transport
        try:
            if self.admin is not None:
                await self.admin.start()
                log.info("admin at http://%s", self.admin.address, extra={"event": "admin"})
            if node.plan is not None:
                # Where it will go on is not known yet; the partners of the first rounds are the same for all.
                transport.want(node.plan.needed(1))
            await transport.start(self)
            log.info("listening at %s", transport.listen, extra={"event": "listening"})
            await transport.all_up(node.mailbox.begun, self._met_by_others, node.deadlines.timeout())
            if not node.stopping:
                self._begin([link.hello for link in transport.links.values()])
                await node.run()
                await self.recorder.finish(node)
            return self._result()
        finally:
            await transport.close()
            if self.admin is not None:
                await self.admin.close()
            self.worker.shutdown()

    # --- what the transport tells

    def deliver(self, peer: NodeName, frame: bytes) -> bool:
        kept_protocol = self.node.deliver(peer, frame)
        if self.node.phase == "waiting":
            self.transport.look_again()  # it may have said that it plays
        return kept_protocol

    def link_up(self, peer: NodeName, hello: Hello) -> None:
        if not self.membership:  # the graph is known by what the neighbours say
            self.said[peer] = hello.neighbours
            self.node.topology = _known_graph(self.name, self.said)
        self.node.link_up(peer, hello)

    def link_down(self, peer: NodeName) -> None:
        self.node.link_down(peer)

    def keep_record(self) -> None:
        """Write the evaluated rounds to NAME.jsonl in the run folder; after a resume, behind those that are there."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lines = LineFile(self.folder / f"{file_name(self.name)}.jsonl")
        except OSError as error:
            what = f"--out {self.folder}: {error.strerror}"
            raise ConfigError(f"{what}; accepted is a folder that can be made and written in") from None
        self.recorder.on_line = lambda line: lines.add(json.dumps(json_value(line)) + "\n")

    def keep_model(self) -> bool:
        """The trained model as a file; False, and a line in the log, where the disk will not take it."""
        path = self.folder / f"{file_name(self.name)}.safetensors"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.learner.save_model(path)
        except OSError as error:
            log.error("%s not written: %s", path, error.strerror, extra={"event": "model-failed"})
            return False
        return True

    def stop(self) -> None:
        """Leave in good order: finish the round, write a checkpoint, say goodbye."""
        log.info("asked to stop", extra={"event": "stopping"})
        self.node.stopping = True
        self.transport.stop_waiting()

    def gone(self, peer: NodeName) -> None:
        """A peer will not come, or not again: whoever launched it knows. Once this node plays, links tell it all."""
        self.transport.absent.add(peer)
        self.transport.look_again()

    def _met_by_others(self) -> set[NodeName]:
        """Those who play have met all their neighbours."""
        round = self.node.round + 1
        playing = self.node.mailbox.begun
        return {NodeName(peer) for name in playing for peer in self.node.topology.neighbours(name, round)}

    def _begin(self, hellos: list[Hello]) -> None:
        """Load the checkpoint that fits where the neighbours are."""
        load, round = starting_point(self.kept_rounds, hellos)
        if self.resume_round is None and not round and len(self.kept_rounds) > 1:
            log.warning(
                "no checkpoint of a round that all neighbours have: beginning anew", extra={"event": "no-common-round"}
            )
        if self.resume_round is not None and load == round:
            load = round = self.resume_round
        if load:
            checkpoint = self.checkpoints.load(load)
            if checkpoint is None:
                raise ConfigError(f"--resume: checkpoint of round {load} in {self.checkpoints.folder} cannot be read")
            self.learner.restore(checkpoint.tensors)
            self.recorder.restore(self.node, checkpoint)
        self.node.round = min(round, self.task.federation.rounds)
        if round:
            log.info("going on after round %d, from checkpoint %d", round, load, extra={"event": "resumed"})

    def _result(self) -> dict[str, Any]:
        """The last line of a daemon: its part of the run's summary."""
        node = self.node
        return {
            "name": self.name,
            "final": True,
            "finished": node.phase == "done",
            "round": node.round,
            "resumable": bool(self.recorder.saved or self.kept_rounds[1:]),
            "parameters_sha256": self.learner.parameters.sha256(),
            "payload_bytes": self.recorder.payload,
            "framed_bytes": self.recorder.framed,
            "stream_bytes": self.transport.kernel_total().sent,
            "wire_bytes": self.recorder.wire_before + self.recorder.wire(),
            "missed": sum(node.mailbox.missed.values()),
        }


def file_name(name: NodeName) -> str:
    """A node's name as part of a path."""
    return name.replace(":", "_")


def _known_graph(name: NodeName, said: dict[NodeName, Any]) -> Topology:
    """The part of the graph around a node: its neighbours, and theirs, as they said."""
    members = in_order({name, *said, *(NodeName(far) for neighbours in said.values() for far in neighbours)})
    rank = {member: number for number, member in enumerate(members)}
    edges = [(rank[name], rank[peer]) for peer in said]
    edges += [
        (rank[peer], rank[NodeName(far)]) for peer, neighbours in said.items() for far in neighbours if far != name
    ]
    return Topology(NEIGHBOURS, members, Schedule(lambda _: edges))


def run_daemon(daemon: Daemon, lifeline: bool) -> dict[str, Any]:
    """Run a daemon as this process: signals, log, event loop. `lifeline`: standard input is a launcher's."""

    async def main() -> dict[str, Any]:
        logs.configure(daemon.name, lambda: daemon.node.round, daemon.settings.log_format)
        _obey_signals(daemon)
        watch = asyncio.create_task(_watch_lifeline(daemon)) if lifeline else None
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


def _obey_signals(daemon: Daemon) -> None:
    """The first signal asks the daemon to leave, the second ends it."""

    def stop() -> None:
        if daemon.node.stopping:
            os._exit(130)
        daemon.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


async def _watch_lifeline(daemon: Daemon) -> None:
    """The launcher holds the other end of standard input. It says who is gone, a line of JSON each; where the pipe
    closes the launcher itself is, and this node must not stay."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        daemon.gone(NodeName(json.loads(line)["gone"]))
    log.warning("the launcher is gone", extra={"event": "orphaned"})
    os.kill(os.getpid(), signal.SIGTERM)
