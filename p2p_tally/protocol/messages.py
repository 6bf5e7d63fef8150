"""The messages between neighbours: immutable, and checked when they are made.

The number of a kind identifies it on the wire and is never used for another message. A message does not contain its
sender: the receiver knows who is at the other end of the link.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from p2p_tally.errors import FrameError
from p2p_tally.protocol.checksum import checksum
from p2p_tally.protocol.evidence_messages import Echoed, Passed, Signed, Witnessed
from p2p_tally.protocol.handover_messages import Fetch, Handed, Piece, State
from p2p_tally.protocol.kinds import (
    MAX_NUMBER,
    MAX_TEXT,
    Kind,
    Stage,
    check_bytes,
    check_number,
    check_round,
    check_text,
)
from p2p_tally.protocol.list_messages import ListAsk, Listed, ListNumber, ListPart, ListRequest

__all__ = [
    "MAX_NUMBER", "MAX_TEXT", "Announce", "Bye", "Echoed", "Fetch", "Handed", "Hello", "Here", "Kind", "ListAsk",
    "ListNumber", "ListPart", "ListRequest", "Listed", "Lost", "Message", "News",
    "Notice", "Passed", "Piece", "Ready", "Relayed", "Shard", "Signed", "Stage", "State", "Vote", "Waiting", "Welcome",
    "Withdraw", "Witnessed",
]  # fmt: skip

# A ballot longer than this is allowed only up to this round, so that a vote is at most 24 bytes longer than its ballot.
LONG_BALLOT = LONG_BALLOT_ROUNDS = 65_535

# The stages of a merge after its announcements.
SHARD_STAGES = (Stage.VECTOR, Stage.SCATTER, Stage.GATHER, Stage.ROLL, Stage.CHECK, Stage.VERDICT)

# Limits for the lists of a hello. They are checked before anything is compared.
MAX_FIELDS = 64
MAX_LIST = 4096


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message on a link: the sender's name, its federation, and the round it is in."""

    kind: ClassVar[Kind] = Kind.HELLO
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0
    version: int
    name: str
    round: int  # the last round finished
    running: bool  # whether it has started to play rounds
    checkpoints: tuple[int, ...]  # rounds that it can resume from; always contains 0
    neighbours: tuple[str, ...]
    digest: str  # of the fields
    fields: tuple[tuple[str, str], ...]  # what peers must agree on, by name, in a fixed order

    def __post_init__(self) -> None:
        check_number(self.version, "version")
        check_text(self.name, "name")
        check_number(self.round, "round")
        if type(self.running) is not bool:
            raise FrameError("running is not true or false", reason="field")
        for items, most in ((self.checkpoints, MAX_LIST), (self.neighbours, MAX_LIST), (self.fields, MAX_FIELDS)):
            if type(items) is not tuple or len(items) > most:
                raise FrameError(f"not a list of at most {most}", reason="field")
        for number in self.checkpoints:
            check_number(number, "checkpoint")
        for name in self.neighbours:
            check_text(name, "neighbour")
        check_text(self.digest, "digest")
        for pair in self.fields:
            if type(pair) is not tuple or len(pair) != 2:
                raise FrameError("a field is not a pair", reason="field")
            check_text(pair[0], "field")
            check_text(pair[1], "value")


@dataclass(frozen=True, slots=True)
class Vote:
    """A node's ballot for the probes of a round."""

    kind: ClassVar[Kind] = Kind.VOTE
    stage: ClassVar[Stage] = Stage.VOTE
    round: int
    ballot: bytes

    def __post_init__(self) -> None:
        check_round(self.round)
        check_bytes(self.ballot, "ballot")
        if len(self.ballot) > LONG_BALLOT and self.round > LONG_BALLOT_ROUNDS:
            raise FrameError(f"a ballot of {len(self.ballot)} bytes in round {self.round}", reason="field")

    @property
    def payload(self) -> int:
        return len(self.ballot)


@dataclass(frozen=True, slots=True)
class Ready:
    """How many of the labelled probes of a round a node answered right; sent while the channel is still closed."""

    kind: ClassVar[Kind] = Kind.READY
    stage: ClassVar[Stage] = Stage.READY
    payload: ClassVar[int] = 2  # one count of probes, counted like a class index of two bytes
    round: int
    right: int
    of: int

    def __post_init__(self) -> None:
        check_round(self.round)
        check_number(self.right, "right")
        check_number(self.of, "of")
        if self.of == 0 or self.right > self.of:
            raise FrameError(f"{self.right} right of {self.of}", reason="field")


@dataclass(frozen=True, slots=True)
class Announce:
    """The sender takes part in the merge of a round. `present`: a bit for each member it can reach, in order of name.

    `base`: where changes are sent instead of parameters, the name of the vector from which the change is computed.
    `members`: in a federation with a members' list, the digest of the members of this round.
    """

    kind: ClassVar[Kind] = Kind.ANNOUNCE
    stage: ClassVar[Stage] = Stage.ANNOUNCE
    payload: ClassVar[int] = 0
    round: int
    present: bytes
    base: bytes = b""
    members: bytes = b""

    def __post_init__(self) -> None:
        check_round(self.round)
        check_bytes(self.present, "present")
        check_bytes(self.base, "base")
        check_bytes(self.members, "members")


@dataclass(frozen=True, slots=True)
class Shard:
    """One run of parameters, encoded: number `part` of its stage. In a robust merge also what members say about it.

    Its correct length depends on who takes part in the merge, so the exchange checks it. Parameters with a bit changed
    on the way are still parameters, so a checksum goes with them.
    """

    kind: ClassVar[Kind] = Kind.SHARD
    round: int
    stage: Stage
    part: int
    data: bytes | memoryview  # a memoryview is of bytes that nobody changes
    check: bytes = field(init=False)

    def __post_init__(self) -> None:
        check_round(self.round)
        if self.stage not in SHARD_STAGES:
            raise FrameError(f"stage {self.stage!r:.40} carries no parameters", reason="field")
        check_number(self.part, "part")
        if type(self.data) is not memoryview:
            check_bytes(self.data, "data")
        if not self.data:
            raise FrameError("no parameters", reason="field")
        object.__setattr__(self, "check", checksum(self.round, self.stage, self.part, self.data))

    @property
    def payload(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class Bye:
    """The sender has finished this round and leaves."""

    kind: ClassVar[Kind] = Kind.BYE
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0
    round: int

    def __post_init__(self) -> None:
        check_number(self.round, "round")


@dataclass(frozen=True, slots=True)
class Here:
    """The sender plays rounds, starting with the one after this. Do not wait for it in earlier rounds."""

    kind: ClassVar[Kind] = Kind.HERE
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0
    round: int

    def __post_init__(self) -> None:
        check_number(self.round, "round")


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The sender has given up the merge of this round: do not wait for its parameters."""

    kind: ClassVar[Kind] = Kind.WITHDRAW
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0
    round: int

    def __post_init__(self) -> None:
        check_round(self.round)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The sender is alive and waits for others in this round. A node that waits for the sender gives it more time.

    Without this message, one node that hangs would delay its neighbours, and their neighbours would give up on them at
    the same moment. A receiver that has not reached this round yet answers with a Here: it is slow but alive.
    """

    kind: ClassVar[Kind] = Kind.WAITING
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0
    round: int
    at: Stage  # what it waits for; it has already sent its own message for this stage

    def __post_init__(self) -> None:
        check_round(self.round)


@dataclass(frozen=True, slots=True)
class Welcome:
    """The sender accepts the other node's hello: the second and last message of a handshake."""

    kind: ClassVar[Kind] = Kind.WELCOME
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Relayed:
    """Another node's vote, passed on. The ledger counts it under the stage of the vote."""

    kind: ClassVar[Kind] = Kind.RELAYED
    origin: int  # who voted: its position among the members in order of name
    hops: int  # how many links it has passed when it arrives
    message: Vote | Ready

    def __post_init__(self) -> None:
        check_number(self.origin, "origin")
        check_number(self.hops, "hops")
        if self.hops < 2:
            raise FrameError(f"{self.hops} hops: what was passed on has come over two links or more", reason="field")

    @property
    def stage(self) -> Stage:
        return self.message.stage

    @property
    def payload(self) -> int:
        return self.message.payload


@dataclass(frozen=True, slots=True)
class Lost:
    """Which of its neighbours the sender misses: a bit for each member, in order of name. Sent inside a News."""

    kind: ClassVar[Kind] = Kind.LOST
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0
    missing: bytes

    def __post_init__(self) -> None:
        check_bytes(self.missing, "missing")


Notice = Here | Waiting | Lost


@dataclass(frozen=True, slots=True)
class News:
    """A notice from one node to all others. A node passes it on when it sees it for the first time."""

    kind: ClassVar[Kind] = Kind.NEWS
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0
    origin: int  # who sent it first: its position among the members in order of name
    number: int  # chosen by the origin, to recognise copies
    message: Notice

    def __post_init__(self) -> None:
        check_number(self.origin, "origin")
        check_number(self.number, "number")


Message = (
    Hello
    | Vote
    | Ready
    | Announce
    | Shard
    | Bye
    | Here
    | Withdraw
    | Waiting
    | Welcome
    | Relayed
    | News
    | Lost
    | Handed
    | Listed
    | Witnessed
)
