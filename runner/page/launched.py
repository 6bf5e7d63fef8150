"""The page of a launch, and the page of any set of nodes: a gatherer behind a server."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from p2p_tally.errors import ConfigError
from p2p_tally.node.links.addresses import parse_address
from p2p_tally.node.service.admin_address import UNIX, parse_admin
from p2p_tally.page.book import Book
from p2p_tally.runner.launch.launcher import OnAdmin
from p2p_tally.runner.page.gather import Gatherer
from p2p_tally.runner.page.server import PageServer

# Seconds from the messages of the nodes of this machine to the message that gathers them.
AFTER_NODES = 0.4


@contextmanager
def launch_page() -> Iterator[OnAdmin]:
    """A page for a launch. Yields what `launch` takes as `on_admin`."""
    book = Book()
    gatherer = Gatherer(book)
    with PageServer(book, offset=AFTER_NODES, before_close=gatherer.close) as server:
        server.announce()
        yield lambda name, address: server.call(gatherer.follow, address, name)


def serve_page(urls: Sequence[str], listen: str, insecure: bool, token: str | None = None) -> None:
    """Serve a page for the nodes at these admin addresses, until Ctrl-C. `token`: what they ask for."""
    addresses = [checked_url(url) for url in urls]
    where = parse_address(listen, "--listen")
    if not where.loopback and not insecure:
        raise ConfigError(
            f"--listen {where}: reachable from other machines, and everybody there could read the page; "
            "listen on 127.0.0.1, or add --insecure where the network itself is trusted"
        )
    book = Book()
    gatherer = Gatherer(book, token=token)
    with PageServer(book, offset=AFTER_NODES, address=where, before_close=gatherer.stop) as server:
        server.announce()
        for address in addresses:
            server.call(gatherer.follow, address)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


def checked_url(url: str) -> str:
    """The address of a node without its scheme and path."""
    if url.startswith(UNIX):
        return str(parse_admin(url, "page"))
    scheme, found, rest = url.partition("://")
    if found and scheme != "http":
        raise ConfigError(f"{url}: accepted is HOST:PORT, http://HOST:PORT or unix:/PATH, the admin address of a node")
    return str(parse_address((rest if found else url).rstrip("/"), "page"))
