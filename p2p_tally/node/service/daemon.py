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
from p2p_tally.ids import NodeName, file_name, in_order
from p2p_tally.learning.architectures import items_of
from p2p_tally.learning.graph import check_graph, make_topology
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.setup import Task, features_of, make_learner, pick_device, prepare
from p2p_tally.node.conduct import daemon_conduct
from p2p_tally.node.formats import ballot_format, check_sendable, message_limits
from p2p_tally.node.links.addresses import Address
from p2p_tally.node.links.known_graph import NEIGHBOURS, KnownGraph
from p2p_tally.node.links.link import CAP
from p2p_tally.node.links.websocket import WebSocketTransport
from p2p_tally.node.node import Node
from p2p_tally.node.page.views import decoder
from p2p_tally.node.service.admin import Admin
from p2p_tally.node.service.agreement import graph_values, shared_values
from p2p_tally.node.service.carry_over import Kept
from p2p_tally.node.service.listeners import Listeners
from p2p_tally.node.service.metrics import Metrics, NodeCollector
from p2p_tally.node.service.recorder import DaemonRecorder, OnLine
from p2p_tally.node.service.startup import Startup
from p2p_tally.node.service.whereabouts import Whereabouts, whereabouts
from p2p_tally.node.step.inbox import ListDoor
from p2p_tally.node.step.witness import Witness
from p2p_tally.protocol.deadlines import LONGEST_WAIT, Deadlines
from p2p_tally.protocol.frames import VERSION, Limits
from p2p_tally.protocol.handshake import fields_digest, told_differences
from p2p_tally.protocol.messages import Hello, Stage
from p2p_tally.protocol.presence import chosen_presence
from p2p_tally.topologies import Epochs, Topology

log = logging.getLogger(__name__)


class Daemon:
    """A node and the service around it."""

    lists: ListDoor | None = None  # in a federation with a members' list: what takes messages about it
    witness: Witness | None = None  # there too: signs ballots, and keeps the signatures of others

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
            self.topology: Topology = self._make_topology(federation, members)
            self.addresses: Mapping[NodeName, Address | None] = self._linked_addresses(federation)
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
        self.conduct = daemon_conduct(self.task, settings.rank, self.name, self.topology)
        self.learner = self._learner()
        self.folder = settings.out or Path("runs") / file_name(self.name)
        self.fields = self._fields()
        known = self._checkpoint_members(members)
        self.kept = Kept(self.folder, self.name, self.fields, self.learner, known, resume=settings.resume)
        self.checkpoints, self.kept_rounds = self.kept.checkpoints, self.kept.rounds
        # One thread of torch's there too, whatever the program around the daemon has set: as in a simulation.
        self.worker = ThreadPoolExecutor(1, "learner", torch.set_num_threads, (1,))
        self.transport = WebSocketTransport(
            self.name, self.listen, self.addresses, self.hello, self._limits(), random.Random(), inherited,
            where.security, where.desks, lambda peer, *sent: self.node.ledger.book_sent(peer, Stage.CARRIED, *sent),
        )  # fmt: skip
        self.metrics = Metrics()
        self.listeners = self._listeners(on_line, keep_record)
        self.recorder = DaemonRecorder(
            self.learner, self.checkpoints, self._checkpoint_every(), self.metrics,
            lambda: self.transport.kernel_total().wire_sent, self.listeners.tell,
        )  # fmt: skip
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
            least_present=self._least_present(),
            lists=self.lists,
            witness=self.witness,
            make_outbox=self.conduct.make_outbox(self.learner, self.topology),
        )
        self.metrics.registry.register(NodeCollector(self.node, self.transport, self.metrics))
        self.startup = Startup(
            self.transport,
            self.topology,
            self.node.step,
            self.node.position,
            deadlines.timeout,
            has_played=len(self.kept_rounds) > 1,
            may_begin=self._may_begin,
        )
        self.admin = self._make_admin() if settings.admin else None

    def _linked_addresses(self, federation: Federation) -> dict[NodeName, Address | None]:
        """Of those that this node may have a link to. Where members change, anybody may once give or get a state."""
        if isinstance(self.topology, Epochs):
            return dict(self.peers)
        neighbours = self.topology.union(federation.rounds).neighbors(self.name)
        return {NodeName(peer): self.peers[NodeName(peer)] for peer in neighbours}

    def _make_admin(self) -> Admin:
        admin = Admin(self.settings, self.node, self.transport, self.metrics, decoder(self.task.tokenizer))
        self.recorder.listen(admin.feed.record)
        return admin

    def _prepare(self, federation: Federation) -> Task:
        torch.set_num_threads(1)
        settings, whole = self.settings, {"nodes": 1, "partition": "iid"}
        cut = federation if settings.rank is not None else federation.model_copy(update=whole)
        task = prepare(cut, root=settings.data_root, download=settings.download)
        if cut is federation:
            return task
        kept = task.federation.model_copy(update={"nodes": federation.nodes, "partition": federation.partition})
        return Task(**{**vars(task), "federation": kept})

    def _deadlines(self) -> Deadlines:
        fixed = None if self.settings.barrier_timeout == "auto" else self.settings.barrier_timeout
        longest = self.settings.longest_wait or (LONGEST_WAIT if fixed is None else math.inf)
        slow = self.settings.slow_peers != "await"
        return Deadlines(fixed, automatic=fixed is None, longest=longest, bounds_slow=slow)

    def _learner(self) -> Learner:
        rank, device = self.settings.rank or 0, pick_device(self.settings.device)
        return make_learner(self.task, self.name, rank, device, self.conduct.make_learner)

    def _fields(self) -> tuple[tuple[str, str], ...]:
        """The values that every neighbour must share with this node, and those that it is only told."""
        if self.membership:
            return shared_values(self.task, self.learner, graph_values(self.task.federation, self.topology), ())
        # A node that knows only its neighbours does not know these.
        return shared_values(self.task, self.learner, {}, ("nodes", "degree"))

    def _make_topology(self, federation: Federation, members: list[NodeName]) -> Topology:
        return make_topology(federation, members)

    def _checkpoint_members(self, members: list[NodeName]) -> list[NodeName]:
        """Those whom a checkpoint names, so that a later run is told who is another."""
        return members

    def _may_begin(self) -> bool:
        """Whether this node may begin although members are missing that it has not met."""
        return False

    def _least_present(self) -> int | None:
        return chosen_presence(self.settings.chosen_presence, 1 + len(self.peers))

    def _limits(self) -> Limits:
        """The limits for frames. The transport needs them before the node is made."""
        sizes = self.task.probes.votes_per_round, self.task.classes, features_of(self.task)
        ballots = ballot_format(self.task.federation, *sizes)
        check_sendable(self.task.federation, ballots, CAP)
        return message_limits(self.task.federation, ballots, len(self.topology.members))

    def hello(self) -> Hello:
        return Hello(
            version=VERSION,
            name=self.name,
            round=self.node.position.round if self.node.position.playing else 0,
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
            self._on_admin(str(self.admin.address))
        # It is not known yet in which round this node will continue, so it starts with the links of round 1; one that
        # has joined later, with those of its last checkpoint.
        self.node.step.begin_round(1 if self.name in self.topology.members_at(1) else self.kept_rounds[-1] + 1)
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
        if not self.transport.proves_names:
            self.node.step.roster[peer].score.forget_breaches()
        self.node.step.link_up(peer, hello)

    def link_down(self, peer: NodeName) -> None:
        self.node.step.link_down(peer)

    def why_closed(self, peer: NodeName) -> str:
        return self.node.step.why_closed(peer)

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
        self.node.step.stop()
        self.transport.stop_waiting()

    def gone(self, peer: NodeName) -> None:
        """The launcher says that this peer has ended. Used before the first round; after that the links show it."""
        self.startup.will_not_come(peer)

    def _begin(self) -> None:
        """Load the checkpoint that matches the rounds of the neighbours."""
        start = self.startup.point(self.kept_rounds, self.resume_round)
        # A node that did not take part then goes on from the last round that it had played.
        load, round = self.topology.last_round(self.name, start.load), start.round
        if load:
            self.recorder.restore(self.kept.load(load, self.node.position))
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
