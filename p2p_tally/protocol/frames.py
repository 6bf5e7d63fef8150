"""Messages to bytes and back. `decode` returns a valid message or raises a FrameError.

A frame is one msgpack array: the kind, then the message's fields in order. All limits of the wire format are here and
in messages.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack

from p2p_tally.errors import FrameError
from p2p_tally.protocol.messages import (
    MAX_TEXT,
    Announce,
    Bye,
    Echoed,
    Fetch,
    Handed,
    Hello,
    Here,
    Kind,
    ListAsk,
    Listed,
    ListNumber,
    ListPart,
    ListRequest,
    Lost,
    Message,
    News,
    Notice,
    Passed,
    Piece,
    Ready,
    Relayed,
    Shard,
    Signed,
    Stage,
    State,
    Vote,
    Waiting,
    Welcome,
    Withdraw,
    Witnessed,
)
from p2p_tally.protocol.parameter_frames import encode_parameters, is_long, parameter_fields

# Increased when two versions can no longer understand each other.
VERSION = 2

# Parameters are sent in runs of this many bytes. That is large enough that headers hardly count, and small enough that
# a vote does not wait long behind a run, and that a receiver holds few bytes that are not checked yet.
CHUNK_BYTES = 256 * 1024

# Bytes for the other fields of a frame, besides its largest bytes field.
MARGIN = 64

# The longest hello: it has the names of many neighbours, and the fields.
HELLO_BYTES = 64 * 1024

# Items in the array of a hello, and at most in that of any other message. msgpack refuses more before it allocates.
HELLO_ITEMS = 9
MAX_ARRAY = 8


@dataclass(frozen=True)
class Limits:
    """The length of a federation's longest frame; a longer one is refused without being decoded."""

    frame: int

    @classmethod
    def of(cls, largest_ballot: int, members: int, merging: bool) -> "Limits":
        return cls(MARGIN + max(largest_ballot, members // 8 + 1, CHUNK_BYTES if merging else 0))


def encode(message: Message) -> bytes:
    if isinstance(message, Shard) and is_long(len(message.data)):
        numbers = message.kind.value, message.round, message.stage.value, message.part
        return encode_parameters(numbers, message.data, message.check)
    packed: bytes = msgpack.packb(_fields(message))
    return packed


def _fields(message: Message) -> tuple[Any, ...]:
    """The kind, and the fields that follow it."""
    fields: tuple[Any, ...]
    match message:
        case Vote():
            fields = (message.round, message.ballot)
        case Shard():
            fields = (message.round, message.stage.value, message.part, message.data, message.check)
        case Ready():
            fields = (message.round, message.right, message.of)
        case Announce():
            rest = (message.base, message.members) if message.members else (message.base,) if message.base else ()
            fields = (message.round, message.present, *rest)
        case Bye() | Here() | Withdraw():
            fields = (message.round,)
        case (
            Fetch() | State() | Piece() | ListNumber() | ListAsk() | ListPart() | ListRequest()
            | Signed() | Echoed() | Passed()
        ):  # fmt: skip
            fields = tuple(getattr(message, field) for field in message.__slots__)
        case Waiting():
            fields = (message.round, message.at.value)
        case Welcome():
            fields = ()
        case Relayed():
            fields = (message.origin, message.hops, *_fields(message.message))
        case News():
            fields = (message.origin, message.number, *_fields(message.message))
        case Lost():
            fields = (message.missing,)
        case Hello():
            fields = (
                message.version,
                message.name,
                message.round,
                message.running,
                message.checkpoints,
                message.neighbours,
                message.digest,
                message.fields,
            )
    return (message.kind.value, *fields)


def decode(frame: bytes | memoryview, limits: Limits) -> Message:
    """A message that came after the handshake."""
    if len(frame) > limits.frame:
        raise FrameError(f"{len(frame)} bytes, the limit is {limits.frame}", reason="oversized")
    match parameter_fields(frame) or _unpack(frame, binary=limits.frame):
        case (Kind.VOTE.value | Kind.READY.value, *_) as fields:
            return _vote(fields)
        case (Kind.SHARD.value, round, stage, part, data, check):
            return _undamaged(Shard(round, _stage(stage), part, data), check)
        case (Kind.ANNOUNCE.value, _, _, *rest) as fields if len(rest) <= 2 and (not rest or rest[-1]):
            return Announce(*fields[1:])
        case (Kind.BYE.value | Kind.WITHDRAW.value as kind, round):
            return Bye(round) if kind == Kind.BYE else Withdraw(round)
        case (Kind.HERE.value | Kind.WAITING.value | Kind.LOST.value, *_) as fields:
            return _notice(fields)
        case (Kind.WELCOME.value,):
            return Welcome()
        case (int() as kind, *_) as fields if kind in _READERS:
            return _READERS[kind](fields)
        case (Kind.RELAYED.value, origin, hops, int(), *_) as fields:
            return Relayed(origin, hops, _vote(fields[3:]))
        case (Kind.NEWS.value, origin, number, int(), *_) as fields:
            return News(origin, number, _notice(fields[3:]))
        case fields:
            raise FrameError(f"kind {fields[0]!r:.20} with {len(fields) - 1} fields is unknown", reason="unknown-kind")


def _undamaged(shard: Shard, check: object) -> Shard:
    if shard.check != check:
        raise FrameError(f"parameters of round {shard.round} that changed on the way", reason="damaged")
    return shard


def _vote(fields: tuple[Any, ...]) -> Vote | Ready:
    """A vote, or the count sent in its place, from its kind and its fields."""
    match fields:
        case (Kind.VOTE.value, round, ballot):
            return Vote(round, ballot)
        case (Kind.READY.value, round, right, of):
            return Ready(round, right, of)
    raise FrameError(f"kind {fields[0]!r:.20} with {len(fields) - 1} fields is unknown", reason="unknown-kind")


def _handed(fields: tuple[Any, ...]) -> Handed:
    match fields:
        case (Kind.FETCH.value, round):
            return Fetch(round)
        case (Kind.STATE.value, round, warmup, merged_at, size, digest):
            return State(round, warmup, merged_at, size, digest)
        case (Kind.PIECE.value, part, data):
            return Piece(part, data)
    raise FrameError(f"kind {fields[0]!r:.20} with {len(fields) - 1} fields is unknown", reason="unknown-kind")


def _listed(fields: tuple[Any, ...]) -> Listed:
    match fields:
        case (Kind.LIST_NUMBER.value, number, digest):
            return ListNumber(number, digest)
        case (Kind.LIST_ASK.value, first):
            return ListAsk(first)
        case (Kind.LIST_PART.value, first, lines):
            return ListPart(first, lines)
        case (Kind.LIST_REQUEST.value, line):
            return ListRequest(line)
    raise FrameError(f"kind {fields[0]!r:.20} with {len(fields) - 1} fields is unknown", reason="unknown-kind")


def _witnessed(fields: tuple[Any, ...]) -> Witnessed:
    match fields:
        case (Kind.SIGNED.value, batch, start, count, root, signature):
            return Signed(batch, start, count, root, signature)
        case (Kind.ECHOED.value, batch, members, said):
            return Echoed(batch, members, said)
        case (Kind.PASSED.value, origin, batch, start, count, root, signature):
            return Passed(origin, batch, start, count, root, signature)
    raise FrameError(f"kind {fields[0]!r:.20} with {len(fields) - 1} fields is unknown", reason="unknown-kind")


_READERS: dict[int, Callable[[tuple[Any, ...]], Handed | Listed | Witnessed]] = {
    **dict.fromkeys((Kind.FETCH, Kind.STATE, Kind.PIECE), _handed),
    **dict.fromkeys((Kind.LIST_NUMBER, Kind.LIST_ASK, Kind.LIST_PART, Kind.LIST_REQUEST), _listed),
    **dict.fromkeys((Kind.SIGNED, Kind.ECHOED, Kind.PASSED), _witnessed),
}


def _notice(fields: tuple[Any, ...]) -> Notice:
    match fields:
        case (Kind.HERE.value, round):
            return Here(round)
        case (Kind.WAITING.value, round, at):
            return Waiting(round, _stage(at))
        case (Kind.LOST.value, missing):
            return Lost(missing)
    raise FrameError(f"kind {fields[0]!r:.20} with {len(fields) - 1} fields is unknown", reason="unknown-kind")


def decode_hello(frame: bytes) -> Hello:
    """The first message of a link must be a hello.

    It is read item by item, so that no memory is reserved for a length that a stranger only declares.
    """
    if len(frame) > HELLO_BYTES:
        raise FrameError(f"{len(frame)} bytes, the limit of a hello is {HELLO_BYTES}", reason="oversized")
    unpacker = msgpack.Unpacker(
        use_list=False,
        max_buffer_size=HELLO_BYTES,
        max_array_len=0,
        max_map_len=0,
        max_ext_len=0,
        max_str_len=MAX_TEXT * 4,
        max_bin_len=0,
    )
    unpacker.feed(frame)
    item = unpacker.unpack

    def items(read: Callable[[], Any]) -> tuple[Any, ...]:
        return tuple([read() for _ in range(unpacker.read_array_header())])

    try:
        length, kind = unpacker.read_array_header(), item()
        _check_kind(kind)
        if kind != Kind.HELLO or length != HELLO_ITEMS:
            raise FrameError(f"kind {kind!r:.20} with {length - 1} fields is no hello", reason="unknown-kind")
        version, name, round, running = item(), item(), item(), item()
        checkpoints, neighbours = items(item), items(item)
        digest, fields = item(), items(lambda: items(item))
    except _UNREADABLE as error:
        raise _garbage(error) from None
    if unpacker.tell() != len(frame):
        raise FrameError("more bytes than a hello", reason="garbage")
    return Hello(version, name, round, running, checkpoints, neighbours, digest, fields)


def _unpack(frame: bytes | memoryview, binary: int) -> tuple[Any, ...]:
    """The kind and the fields of a message. No field may be an array."""
    try:
        fields = msgpack.unpackb(
            frame,
            use_list=False,
            max_array_len=MAX_ARRAY,
            max_map_len=0,
            max_ext_len=0,
            max_str_len=0,
            max_bin_len=binary,
        )
    except _UNREADABLE as error:
        raise _garbage(error) from None
    if type(fields) is not tuple or not fields:
        raise FrameError("not an array that begins with a kind", reason="garbage")
    _check_kind(fields[0])
    if tuple in map(type, fields):  # it may be nested so deeply that even printing it fails
        raise FrameError("an array in the place of a field", reason="garbage")
    return fields


# What msgpack raises for bytes that it cannot read, or that are past the limits.
_UNREADABLE = (ValueError, TypeError, RecursionError, msgpack.UnpackException)


def _garbage(error: Exception) -> FrameError:
    return FrameError(f"not msgpack within the limits: {error!s:.80}", reason="garbage")


def _check_kind(kind: object) -> None:
    if type(kind) is not int:  # in Python True equals 1, but on the wire it is no kind
        raise FrameError("not an array that begins with a kind", reason="garbage")


def _stage(value: object) -> Stage:
    # In Python 3.0 equals 3, but on the wire it is no stage.
    if type(value) is not int or value not in Stage.__members__.values():
        raise FrameError(f"stage {value!r:.20} is unknown", reason="field")
    return Stage(value)


def websocket_header(length: int, *, masked: bool) -> int:
    """Bytes of the WebSocket header (RFC 6455) for a message of this length. The side that dialled masks messages."""
    extended = 0 if length < 126 else 2 if length < 65_536 else 8
    return 2 + extended + (4 if masked else 0)
