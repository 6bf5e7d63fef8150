"""The start of a connection: both sides send a hello, check the other's, and send a welcome. Then it is a link."""

import asyncio
from collections.abc import Mapping

import aiohttp

from p2p_tally.errors import HandshakeError, PeerError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.link import Connection, Link
from p2p_tally.node.links.state import LinkState
from p2p_tally.node.links.transport import dials
from p2p_tally.protocol import frames
from p2p_tally.protocol.handshake import check_hello
from p2p_tally.protocol.messages import Hello, Welcome

# The limit from accepting a connection to the end of the handshake, and for each of its two steps.
HANDSHAKE_SECONDS = 5.0

# WebSocket close code of a refusal; 4000 to 4999 are for applications.
REFUSED = 4001
# A close frame has room for 123 bytes of text.
REASON_BYTES = 120


# WebSocket close code of a second connection between two nodes that have a link.
LINKED = 4003


class LinkedAlready(PeerError):
    """The two have another link, which stays. No refusal: both may dial, and may do so at the same moment."""

    reason = "linked"


async def exchange_hellos(
    connection: Connection,
    own: Hello,
    neighbours: Mapping[NodeName, LinkState],
    dialled: NodeName | None,
    owner: NodeName | None,
) -> Hello:
    """The other's hello, or a PeerError that says what is wrong. `dialled`: the peer that this node dialled, if it did.
    `owner`: of the key that the other has shown; None: links are plain, and the names say who dials."""
    async with asyncio.timeout(HANDSHAKE_SECONDS):
        await connection.send_bytes(frames.encode(own))
        message = await connection.receive()
    if message.type is not aiohttp.WSMsgType.BINARY:
        raise HandshakeError("no hello", reason="no-hello")
    theirs = frames.decode_hello(message.data)
    if owner is not None and theirs.name != owner:
        raise HandshakeError(f"{theirs.name:.80} is not the owner of the key, which is {owner}'s", reason="owner")
    check_hello(own, theirs, neighbours)
    if owner is None and dialled is None and not dials(NodeName(theirs.name), NodeName(own.name)):
        raise HandshakeError(f"{theirs.name:.80} should wait to be dialled", reason="direction")
    if dialled is not None and theirs.name != dialled:
        raise HandshakeError(f"{neighbours[dialled].address} is {theirs.name:.80}, not {dialled}", reason="name")
    return theirs


async def exchange_welcomes(connection: Connection, theirs: Hello, *, dialled: bool) -> Link:
    """The link; its second and last step."""
    async with asyncio.timeout(HANDSHAKE_SECONDS):
        await connection.send_bytes(frames.encode(Welcome()))
        answer = await connection.receive()
    if answer.type is aiohttp.WSMsgType.CLOSE and answer.data == REFUSED:
        raise HandshakeError(f"{theirs.name:.80} refuses: {answer.extra}", reason="refused")
    if answer.type is aiohttp.WSMsgType.CLOSE and answer.data == LINKED:
        raise LinkedAlready(f"{theirs.name:.80} has a link to this node")
    if answer.type is not aiohttp.WSMsgType.BINARY or answer.data != frames.encode(Welcome()):
        raise HandshakeError("no welcome", reason="no-welcome")
    return Link(connection, theirs, dialled=dialled)


async def refuse(connection: Connection, error: BaseException) -> None:
    """Close with the reason in the close frame."""
    text = str(error) if isinstance(error, PeerError) else ""
    code = LINKED if isinstance(error, LinkedAlready) else REFUSED
    await connection.close(code=code, message=text.encode()[:REASON_BYTES].decode(errors="ignore").encode())
