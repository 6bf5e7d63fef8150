"""Messages to bytes and back. Nothing invalid gets past `decode`: a message, or a FrameError.

A frame is one msgpack array: the kind, then the message's fields in order. All limits of the wire stand here.
"""

from dataclasses import dataclass

import msgpack

from p2p_tally.errors import FrameError
from p2p_tally.protocol.messages import Kind, Message, Ready, Shard, Stage, Vote

# Parameters travel in runs of this many bytes: large enough that headers vanish, small enough that a vote is never
# stuck behind one for long and a receiver holds little that is not yet checked.
CHUNK_BYTES = 256 * 1024

# Room for a frame's own fields beside its largest bytes field.
MARGIN = 64

# The largest array of any kind; msgpack refuses more before it allocates.
MAX_FIELDS = 8


@dataclass(frozen=True)
class Limits:
    """What a federation's largest message needs; a longer frame is refused unread."""

    frame: int

    @classmethod
    def of(cls, largest_ballot: int, merging: bool) -> "Limits":
        return cls(MARGIN + max(largest_ballot, CHUNK_BYTES if merging else 0))


def encode(message: Message) -> bytes:
    fields: tuple[int | bytes, ...]
    match message:
        case Vote():
            fields = (Kind.VOTE.value, message.round, message.ballot)
        case Ready():
            fields = (Kind.READY.value, message.round, message.right, message.of)
        case Shard():
            fields = (Kind.SHARD.value, message.round, message.stage.value, message.offset, message.data)
    packed: bytes = msgpack.packb(fields)
    return packed


def decode(frame: bytes, limits: Limits) -> Message:
    if len(frame) > limits.frame:
        raise FrameError(f"{len(frame)} bytes, the limit is {limits.frame}", reason="oversized")
    try:
        fields = msgpack.unpackb(
            frame,
            use_list=False,
            strict_map_key=True,
            max_array_len=MAX_FIELDS,
            max_map_len=0,
            max_ext_len=0,
            max_str_len=0,
            max_bin_len=limits.frame,
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise FrameError(f"not msgpack within the limits: {error!s:.80}", reason="garbage") from None
    if type(fields) is not tuple or not fields:
        raise FrameError("not an array of fields", reason="garbage")
    match fields:
        case (Kind.VOTE.value, round, ballot) if type(fields[0]) is int:
            return Vote(round, ballot)
        case (Kind.READY.value, round, right, of) if type(fields[0]) is int:
            return Ready(round, right, of)
        case (Kind.SHARD.value, round, stage, offset, data) if type(fields[0]) is int:
            return Shard(round, _stage(stage), offset, data)
    raise FrameError(f"kind {fields[0]!r:.20} with {len(fields) - 1} fields is unknown", reason="unknown-kind")


def _stage(value: object) -> Stage:
    try:
        return Stage(value)  # type: ignore[arg-type]
    except ValueError:
        raise FrameError(f"stage {value!r:.20} is unknown", reason="field") from None


def websocket_header(length: int, *, masked: bool) -> int:
    """Bytes that RFC 6455 puts before a binary message of this length; the side that dialled masks what it sends."""
    extended = 0 if length < 126 else 2 if length < 65_536 else 8
    return 2 + extended + (4 if masked else 0)
