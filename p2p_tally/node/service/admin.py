"""The admin address of a node: a live page, /healthz, /readyz, /status (JSON), /metrics (Prometheus). Read only."""

import logging
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from p2p_tally.config import DaemonSettings
from p2p_tally.errors import ConfigError
from p2p_tally.ids import in_order, name_key
from p2p_tally.node.links.addresses import DIAL_ONLY, Address
from p2p_tally.node.links.websocket import WebSocketTransport
from p2p_tally.node.node import Node
from p2p_tally.node.page.feed import NodeFeed
from p2p_tally.node.page.views import Decode
from p2p_tally.node.service.admin_address import SocketFile, admin_of
from p2p_tally.node.service.metrics import Metrics
from p2p_tally.page.hub import Hub
from p2p_tally.page.site import add_page, make_site

log = logging.getLogger(__name__)

# Answered without the token: they say no more than that the node is there.
OPEN = frozenset({"/healthz", "/readyz"})


def status(node: Node, transport: WebSocketTransport, metrics: Metrics) -> dict[str, Any]:
    """What /status shows: the round, the links, who is missing, the scores of peers, accuracy and bytes."""
    sent, missing = node.ledger.total_sent(), node.step.attendance.missing
    # If the graph changes, links are made before they are needed: while a link is opening, its peer is not missing.
    well = ("up", "idle", "opening") if node.topology.varies and node.position.playing else ("up", "idle")
    if missing is None:  # it is not paused: then the neighbours count
        missing = [
            peer
            for peer in in_order(transport.peers)
            if transport.peers[peer].state not in well or not node.step.roster[peer].is_there
        ]
    return {
        "name": node.name,
        "round": node.position.round,
        "rounds": node.federation.rounds,
        "phase": node.position.phase,
        "method": node.federation.method,
        "links": {
            peer: {
                "state": transport.peers[peer].state,
                "address": str(transport.peers[peer].address or DIAL_ONLY),
                "detail": transport.peers[peer].detail,
                "queued_bytes": transport.links[peer].queued if peer in transport.links else 0,
            }
            for peer in in_order(transport.peers)
        },
        "open_links": len(transport.links),
        "missing": missing,
        "scores": {
            peer: {"score": round(score.value, 1), "standing": score.standing, "reasons": score.reasons}
            for peer, score in sorted(node.step.scores().items(), key=lambda item: name_key(item[0]))
        },
        "accuracy": None if metrics.accuracy is None else 100 * metrics.accuracy,
        "payload_bytes": sent.payload,
        "framed_bytes": sent.framed,
    }


class Admin:
    """A small HTTP server beside the node."""

    def __init__(
        self,
        settings: DaemonSettings,
        node: Node,
        transport: WebSocketTransport,
        metrics: Metrics,
        decode: Decode | None = None,
    ) -> None:
        """`decode`: tokens as text, where the probes are text."""
        self.address, token = admin_of(settings)
        self._node = node
        self._transport = transport
        self._metrics = metrics
        self.feed = NodeFeed(node, lambda: status(node, transport, metrics), decode)
        self._hub = Hub(self.feed.book, self.feed.refresh)
        app = make_site(isinstance(self.address, Address) and self.address.loopback, token, OPEN, _refused)
        add_page(app, self._hub)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/status", self._status)
        app.router.add_get("/metrics", self._scrape)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> None:
        await self._runner.setup()
        try:
            await self._site().start()
        except OSError as error:
            raise ConfigError(f"--admin {self.address}: {error.strerror or error}") from None
        if isinstance(self.address, SocketFile):
            log.info("admin at %s", self.address, extra={"event": "admin"})
            return
        if self.address.port == 0:
            self.address = Address(self.address.host, self._runner.addresses[0][1])
        log.info("admin at http://%s", self.address, extra={"event": "admin"})
        if not self.address.loopback:
            log.warning("admin at %s: plain text, and its token too", self.address, extra={"event": "admin"})

    def _site(self) -> web.BaseSite:
        if isinstance(self.address, SocketFile):
            return web.SockSite(self._runner, self.address.bind())
        return web.TCPSite(self._runner, self.address.host, self.address.port)

    async def close(self) -> None:
        await self._hub.close()
        served = bool(self._runner.sites)
        await self._runner.cleanup()
        if isinstance(self.address, SocketFile) and served:
            self.address.path.unlink(missing_ok=True)

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        """Ready: the node has found its neighbours and plays rounds."""
        ready = self._node.position.playing
        return web.Response(text="ready\n" if ready else "waiting for peers\n", status=200 if ready else 503)

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response(status(self._node, self._transport, self._metrics))

    async def _scrape(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _refused(why: str) -> None:
    log.warning("admin: a request refused: %s", why, extra={"event": "admin-refused", "reason": why})
