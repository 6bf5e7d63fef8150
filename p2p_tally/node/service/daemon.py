"""One daemon: a node made from settings, with real sockets, a clock, checkpoints, a log, and an admin address.

Only this module puts the parts of the node together.
"""

import asyncio
import logging
import math
import random
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from p2p_tally.config import DaemonSettings, Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import NodeName, digest, file_name, in_order
from p2p_tally.learning.architectures import items_of
from p2p_tally.learning.graph import check_graph, make_topology, merge_ring
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.schedule import begin_alike
from p2p_tally.learning.setup import Task, make_learner, pick_device, prepare
from p2p_tally.learning.start import frozen_digest
from p2p_tally.node.formats import ballot_format, check_sendable, message_limits
from p2p_tally.node.links.addresses import Address, parse_address
from p2p_tally.node.links.known_graph import NEIGHBOURS, KnownGraph
from p2p_tally.node.links.link import CAP
from p2p_tally.node.links.websocket import WebSocketTransport
from p2p_tally.node.node import Node
from p2p_tally.node.page.views import decoder
from p2p_tally.node.service.admin import Admin
from p2p_tally.node.service.checkpoint import Checkpoints
from p2p_tally.node.service.listeners import Listeners
from p2p_tally.node.service.metrics import Metrics, NodeCollector
from p2p_tally.node.service.recorder import DaemonRecorder, OnLine
from p2p_tally.node.service.startup import Startup
from p2p_tally.node.service.whereabouts import Whereabouts, check_reach, whereabouts
from p2p_tally.protocol.deadlines import LONGEST_WAIT, Deadlines
from p2p_tally.protocol.frames import VERSION, Limits
from p2p_tally.protocol.handshake import TOLD, agreed_fields, fields_digest, told_differences
from p2p_tally.protocol.messages import Hello, Stage
from p2p_tally.topologies import Topology

log = logging.getLogger(__name__)


class Daemon:
    """A node and the service around it."""

    def __init__(
        self,
        federation: Federation,
        settings: DaemonSettings,
        *,
        membership: bool,
        resume_round: int | None = None,
        inherited: socket.socket | None = None,
        on_line: OnLine | None = None,
        keep_record: bool = False,
        on_admin: Callable[[str], None] | None = None,
        where: Whereabouts | None = None,
    ) -> None:
        """`membership`: --peers are all members, and the neighbours follow from the topology.

        A launcher, which knows all nodes, sets `resume_round` and `inherited` (a listening socket). `on_line` is called
        with each evaluated round; with `keep_record` each is also written to NAME.jsonl, and to what --log names.
        `on_admin` is called with the admin address, once it is served. `where`: in place of what the settings say of
        names, addresses and keys.
        """
        self.settings = settings
        self._on_admin = on_admin or (lambda _: None)
        self.resume_round = resume_round
        where = where or whereabouts(settings)
        self.name, self.listen, self.peers = where.name, where.listen, where.peers
        self.membership = membership
        members = in_order([self.name, *self.peers])
        if membership:
            if federation.nodes != len(members):
                federation = federation.model_copy(update={"nodes": len(members)})
            self.topology: Topology = make_topology(federation, members)
            neighbours = self.topology.union(federation.rounds).neighbors(self.name)
            self.addresses: Mapping[NodeName, Address | None] = {
                NodeName(peer): self.peers[NodeName(peer)] for peer in neighbours
            }
        else:
            if federation.hops != 1:
                raise ConfigError(
                    f"--hops {federation.hops}: accepted is 1 where a node knows only its neighbours; "
                    "with --topology, and all other members as --peers, votes can travel further"
                )
            check_graph(federation, None)
            federation = federation.model_copy(update={"topology": NEIGHBOURS})
            self.topology = KnownGraph(self.name, self.peers)
            self.addresses = self.peers
        if settings.rank is not None and settings.rank >= federation.nodes:
            raise ConfigError(f"--rank {settings.rank}: accepted is 0 to {federation.nodes - 1}")
        if settings.rank is None and len(items_of(federation)) > 1:
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
        # One thread of torch's there too, whatever the program around the daemon has set: as in a simulation.
        self.worker = ThreadPoolExecutor(1, "learner", torch.set_num_threads, (1,))
        self.transport = WebSocketTransport(
            self.name, self.listen, self.addresses, self.hello, self._limits(), random.Random(), inherited,
            where.security, where.desks, lambda peer, *sent: self.node.ledger.book_sent(peer, Stage.CARRIED, *sent),
        )  # fmt: skip
        self.metrics = Metrics()
        self.listeners = self._listeners(on_line, keep_record)
        self.recorder = DaemonRecorder(
            self.learner,
            self.checkpoints,
            self._checkpoint_every(),
            self.metrics,
            lambda: self.transport.kernel_total().wire_sent,
            self.listeners.tell,
        )
        deadlines = self._deadlines()
        self.node = Node(
            self.name,
            self.learner,
            self.topology,
            self.transport,
            self.recorder,
            self.compute,
            clock=time.monotonic,
            deadlines=deadlines,
            quorum=settings.quorum,
        )
        self.metrics.registry.register(NodeCollector(self.node, self.transport, self.metrics))
        self.startup = Startup(
            self.transport, self.topology, self.node.step, self.node.position, deadlines.timeout, has_played=bool(kept)
        )
        self.admin = self._make_admin(settings.admin) if settings.admin else None

    def _make_admin(self, text: str) -> Admin:
        address = parse_address(text, "--admin")
        check_reach(address, "--admin", insecure=self.settings.insecure)
        admin = Admin(address, self.node, self.transport, self.metrics, decoder(self.task.tokenizer))
        self.recorder.listen(admin.feed.record)
        return admin

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

    def _deadlines(self) -> Deadlines:
        fixed = None if self.settings.barrier_timeout == "auto" else self.settings.barrier_timeout
        longest = self.settings.longest_wait or (LONGEST_WAIT if fixed is None else math.inf)
        return Deadlines(fixed, automatic=fixed is None, longest=longest)

    def _learner(self) -> Learner:
        return make_learner(self.task, self.name, self.settings.rank or 0, pick_device(self.settings.device))

    def _fields(self) -> tuple[tuple[str, str], ...]:
        """The values that every neighbour must share with this node, and those that it is only told."""
        federation = self.task.federation
        values: dict[str, Any] = federation.agreed()
        if self.membership:
            values["members"] = digest(*(member.encode() for member in self.topology.members))[:16]
            graph = self.topology.union(federation.rounds)
            edges = sorted("\t".join(sorted(edge)) for edge in graph.edges)
            values["graph"] = digest(*(edge.encode() for edge in edges))[:16]
            ring = merge_ring(federation, self.topology)
            if ring is not None:
                values["ring"] = digest(*(member.encode() for member in ring))[:16]
        else:
            del values["nodes"], values["degree"]  # a node that knows only its neighbours does not know these
        values["classes"] = self.task.classes
        values["probe set"] = self.task.probes.digest()[:16]
        if federation.merge_every:
            values["parameters"] = f"{len(self.learner.parameters)} ({self.learner.parameters.schema[:16]})"
            frozen = frozen_digest(self.learner.model)
            if frozen is not None:
                values["frozen parameters"] = frozen[:16]
        if federation.init is not None and begin_alike(federation):
            values["first parameters"] = self.learner.parameters.sha256()[:16]
        return agreed_fields(values | {name: getattr(federation, name) for name in TOLD})

    def _limits(self) -> Limits:
        """The limits for frames. The transport needs them before the node is made."""
        ballots = ballot_format(self.task.federation, self.task.probes.votes_per_round, self.task.classes)
        check_sendable(self.task.federation, ballots, CAP)
        return message_limits(self.task.federation, ballots, len(self.topology.members))

    def hello(self) -> Hello:
        return Hello(
            version=VERSION,
            name=self.name,
            round=self.node.position.round,
            running=self.node.position.playing,
            checkpoints=self.kept_rounds,
            neighbours=() if self.membership else tuple(in_order(self.addresses)),
            digest=fields_digest(self.fields),
            fields=self.fields,
        )

    def _listeners(self, on_line: OnLine | None, keep_record: bool) -> Listeners:
        listeners = Listeners(on_line)
        if keep_record:
            listeners.keep_record(self.folder, self.name, self.task.federation, self.settings)
        return listeners

    def _checkpoint_every(self) -> int:
        every = self.settings.checkpoint_every
        return max(1, self.task.federation.rounds // 20) if every is None else every

    async def compute(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do the learner's work on another thread, so that the node can answer messages while it trains."""
        return await asyncio.get_running_loop().run_in_executor(self.worker, work, *arguments)

    async def run(self) -> dict[str, Any]:
        """Play all rounds, or until asked to stop. Returns the result."""
        try:
            await self.start()
            return await self.play()
        finally:
            await self.close()

    async def start(self) -> None:
        """Open the sockets: from now on peers can connect."""
        if self.admin is not None:
            await self.admin.start()
            log.info("admin at http://%s", self.admin.address, extra={"event": "admin"})
            self._on_admin(str(self.admin.address))
        # It is not known yet in which round this node will continue, so it starts with the links of round 1.
        self.node.step.begin_round(1)
        await self.transport.start(self)
        where = f"listening at {self.transport.listen}" if self.transport.listen else "nobody can dial this node"
        log.info(where, extra={"event": "listening"})

    async def play(self) -> dict[str, Any]:
        """Wait for the neighbours, then play all rounds, or until asked to stop. Returns the result."""
        await self.startup.wait()
        if not self.node.position.stopping:
            self._begin()
            await self.node.run()
            await self.recorder.finish(self.node)
        return self._result()

    async def close(self) -> None:
        await self.transport.close()
        if self.admin is not None:
            await self.admin.close()
        self.worker.shutdown()
        await self.listeners.close()

    # --- called by the transport

    def deliver(self, peer: NodeName, frame: bytes) -> bool:
        kept_protocol = self.node.step.deliver(peer, frame)
        if not self.node.position.playing:
            self.transport.notify_change()  # the peer may have said that it plays
        return kept_protocol

    def link_up(self, peer: NodeName, hello: Hello) -> None:
        for difference in told_differences(self.fields, hello.fields):
            log.warning("%s: the two learn differently", difference, extra={"event": "differs", "peer": peer})
        if isinstance(self.topology, KnownGraph):
            self.topology.learn(peer, hello.neighbours)
        self.node.step.link_up(peer, hello)

    def link_down(self, peer: NodeName) -> None:
        self.node.step.link_down(peer)

    def keep_model(self) -> bool:
        """Write the trained model to a file. If that fails: a line in the log and False."""
        path = self.folder / f"{file_name(self.name)}.safetensors"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.learner.save_model(path)
        except OSError as error:
            log.error("%s not written: %s", path, error.strerror, extra={"event": "model-failed"})
            return False
        return True

    def stop(self) -> None:
        """Finish the round, write a checkpoint, tell the neighbours, and end."""
        log.info("asked to stop", extra={"event": "stopping"})
        self.node.position.stop()
        self.transport.stop_waiting()

    def gone(self, peer: NodeName) -> None:
        """The launcher says that this peer has ended. Used before the first round; after that the links show it."""
        self.startup.will_not_come(peer)

    def _begin(self) -> None:
        """Load the checkpoint that matches the rounds of the neighbours."""
        start = self.startup.point(self.kept_rounds, self.resume_round)
        load, round = start.load, start.round
        if load:
            checkpoint = self.checkpoints.load(load)
            if checkpoint is None:
                raise ConfigError(f"--resume: checkpoint of round {load} in {self.checkpoints.folder} cannot be read")
            self.learner.restore(checkpoint.tensors)
            self.recorder.restore(checkpoint)
            self.node.position.restore(checkpoint.round, checkpoint.notes)
        self.node.position.move_to(round)
        if round:
            log.info("going on after round %d, from checkpoint %d", round, load, extra={"event": "resumed"})

    def _result(self) -> dict[str, Any]:
        """The last line that a daemon prints: its part of the summary of the run."""
        node = self.node
        return {
            "name": self.name,
            "final": True,
            "finished": node.position.phase == "done",
            "round": node.position.round,
            "resumable": bool(self.recorder.saved or self.kept_rounds[1:]),
            "parameters_sha256": self.learner.parameters.sha256(),
            "payload_bytes": self.recorder.payload,
            "framed_bytes": self.recorder.framed,
            "stream_bytes": self.transport.kernel_total().sent,
            "wire_bytes": self.recorder.wire_bytes,
            "missed": sum(node.step.roster.missed.values()),
        }
