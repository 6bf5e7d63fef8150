"""TLS that breaks at an unlucky moment is an ended connection, and no fault of the program."""

import asyncio
import contextlib
import ssl
from pathlib import Path

from aiohttp import ClientConnectorSSLError
from aiohttp.client_reqrep import ConnectionKey
from secure import LOOPS, run_on

from p2p_tally.node.links.security import certificate_shown, key_shown, tls_refusal
from p2p_tally.node.links.sockets import Meter, cut, watch_for_silence
from p2p_tally.trust.certificates import accepting, dialling
from p2p_tally.trust.identity import make_identity


def test_an_error_of_tls_without_a_reason_is_counted() -> None:
    """aiohttp's own is an SSLError, too, but has no `reason`: bytes that were changed on their way cause it."""
    key = ConnectionKey("127.0.0.1", 1, True, True, None, None, None)
    unread = ClientConnectorSSLError(key, OSError(1, "broken"))
    assert tls_refusal(unread).reason == "tls-unfinished"
    unread.__cause__ = ssl.SSLError(1, "bad record")
    unread.__cause__.reason = "BAD_RECORD_MAC"
    assert tls_refusal(unread).reason == "tls"


@LOOPS
def test_a_connection_that_has_ended_shows_nothing(loop: str, tmp_path: Path) -> None:
    """With uvloop the transport of a TLS connection that was lost cannot even be asked."""
    alice, bob = make_identity(tmp_path / "alice"), make_identity(tmp_path / "bob")

    async def ask() -> None:
        server = await asyncio.start_server(
            lambda _, writer: writer.transport.abort(), "127.0.0.1", 0, ssl=accepting(alice.file, [bob.credential])
        )
        async with server, asyncio.timeout(30):
            port = server.sockets[0].getsockname()[1]
            context = dialling(bob.file, alice.credential)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            with contextlib.suppress(OSError):
                await reader.read()
            writer.transport.abort()
            await asyncio.sleep(0.05)
            assert key_shown(writer) in (None, alice.credential.key)
            cut(writer)
            watch_for_silence(writer, 30)
            Meter(writer).close()

    run_on(loop, ask())


class Ended:
    """As uvloop's transport of a TLS connection that has broken."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        raise AttributeError("'NoneType' object has no attribute '_get_extra_info'")


def test_a_transport_that_cannot_be_asked_any_more_shows_nothing() -> None:
    ended = Ended()
    assert key_shown(ended) is None and certificate_shown(ended) is None
    assert Meter(ended).count() is None
    cut(ended)
    watch_for_silence(ended, 30)
