"""The messages between neighbours: frozen, and valid from the moment they exist.

A kind's number is its identity on the wire and is never given to another message. The sender is not in a message:
the link it came over knows its peer.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from p2p_tally.errors import FrameError

# Rounds and counts are written as at most 4 bytes.
MAX_NUMBER = 2**32 - 1

# A ballot longer than this travels in rounds up to this only, so that a vote is at most 24 bytes over its ballot.
LONG_BALLOT = LONG_BALLOT_ROUNDS = 65_535

# A hello's lists and texts are bounded before anything is compared.
MAX_FIELDS = 64
MAX_TEXT = 1024
MAX_LIST = 4096


class Kind(IntEnum):
    """Append only."""

    HELLO = 1
    VOTE = 2
    READY = 3
    SHARD = 4
    ANNOUNCE = 5
    BYE = 6
    HERE = 7
    WITHDRAW = 8
    WAITING = 9
    WELCOME = 10
    RELAYED = 11
    NEWS = 12
    LOST = 13


class Stage(IntEnum):
    """What a barrier waits for; also the name under which the ledger books it. Append only."""

    VOTE = 1  # ballots for the probes of a round
    READY = 2  # accuracy on the probes, while an automatic warm-up lasts
    VECTOR = 3  # a neighbour's parameters
    SCATTER = 4  # all-reduce, first half: the segment of a peer's parameters that this node sums
    GATHER = 5  # all-reduce, second half: the mean of the segment that a peer summed
    ANNOUNCE = 6  # who takes part in a merge
    HANDSHAKE = 7  # hello, here, waiting, withdraw, news and bye


def _number(value: object, what: str) -> None:
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise FrameError(f"{what} is {value!r:.40}, not a number from 0 to {MAX_NUMBER}", reason="field")


def _round(value: object) -> None:
    _number(value, "round")
    if value == 0:
        raise FrameError("round is 0; rounds count from 1", reason="field")


def _bytes(value: object, what: str) -> None:
    if type(value) is not bytes:
        raise FrameError(f"{what} is {type(value).__name__}, not bytes", reason="field")


def _text(value: object, what: str) -> None:
    if type(value) is not str or len(value) > MAX_TEXT:
        raise FrameError(f"{what} is {value!r:.40}, not a text of at most {MAX_TEXT} characters", reason="field")


@dataclass(frozen=True, slots=True)
class Hello:
    """Who is at this end of a link, what it takes part in, and where it is."""

    kind: ClassVar[Kind] = Kind.HELLO
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0
    version: int
    name: str
    round: int  # the last one finished
    running: bool  # it has begun, and plays rounds now
    checkpoints: tuple[int, ...]  # rounds it could start again from, 0 always among them
    neighbours: tuple[str, ...]
    digest: str  # of the fields
    fields: tuple[tuple[str, str], ...]  # what peers must agree on, by name, in a fixed order

    def __post_init__(self) -> None:
        _number(self.version, "version")
        _text(self.name, "name")
        _number(self.round, "round")
        if type(self.running) is not bool:
            raise FrameError("running is not true or false", reason="field")
        for items, most in ((self.checkpoints, MAX_LIST), (self.neighbours, MAX_LIST), (self.fields, MAX_FIELDS)):
            if type(items) is not tuple or len(items) > most:
                raise FrameError(f"not a list of at most {most}", reason="field")
        for number in self.checkpoints:
            _number(number, "checkpoint")
        for name in self.neighbours:
            _text(name, "neighbour")
        _text(self.digest, "digest")
        for pair in self.fields:
            if type(pair) is not tuple or len(pair) != 2:
                raise FrameError("a field is not a pair", reason="field")
            _text(pair[0], "field")
            _text(pair[1], "value")


@dataclass(frozen=True, slots=True)
class Vote:
    """A node's ballot for the probes of a round."""

    kind: ClassVar[Kind] = Kind.VOTE
    stage: ClassVar[Stage] = Stage.VOTE
    round: int
    ballot: bytes

    def __post_init__(self) -> None:
        _round(self.round)
        _bytes(self.ballot, "ballot")
        if len(self.ballot) > LONG_BALLOT and self.round > LONG_BALLOT_ROUNDS:
            raise FrameError(f"a ballot of {len(self.ballot)} bytes in round {self.round}", reason="field")

    @property
    def payload(self) -> int:
        return len(self.ballot)


@dataclass(frozen=True, slots=True)
class Ready:
    """How many of a round's labelled probes a node had right, while the channel is still closed."""

    kind: ClassVar[Kind] = Kind.READY
    stage: ClassVar[Stage] = Stage.READY
    payload: ClassVar[int] = 2  # a count of probes, at the width of a large class index
    round: int
    right: int
    of: int

    def __post_init__(self) -> None:
        _round(self.round)
        _number(self.right, "right")
        _number(self.of, "of")
        if self.of == 0 or self.right > self.of:
            raise FrameError(f"{self.right} right of {self.of}", reason="field")


@dataclass(frozen=True, slots=True)
class Announce:
    """A node takes part in the merge of a round. `present`: a bit for each member it can reach, in name order.

    `base`, where changes are sent and not parameters, names the vector that its change is since.
    """

    kind: ClassVar[Kind] = Kind.ANNOUNCE
    stage: ClassVar[Stage] = Stage.ANNOUNCE
    payload: ClassVar[int] = 0
    round: int
    present: bytes
    base: bytes = b""

    def __post_init__(self) -> None:
        _round(self.round)
        _bytes(self.present, "present")
        _bytes(self.base, "base")


@dataclass(frozen=True, slots=True)
class Shard:
    """One run of parameters, as the federation codes them: number `part` of what its stage transfers.

    How long it must be follows from who takes part; that is checked where it is used.
    """

    kind: ClassVar[Kind] = Kind.SHARD
    round: int
    stage: Stage
    part: int
    data: bytes

    def __post_init__(self) -> None:
        _round(self.round)
        if self.stage not in (Stage.VECTOR, Stage.SCATTER, Stage.GATHER):
            raise FrameError(f"stage {self.stage!r:.40} carries no parameters", reason="field")
        _number(self.part, "part")
        _bytes(self.data, "data")
        if not self.data:
            raise FrameError("no parameters", reason="field")

    @property
    def payload(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class Bye:
    """The sender leaves after this round, in good order."""

    kind: ClassVar[Kind] = Kind.BYE
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0
    round: int

    def __post_init__(self) -> None:
        _number(self.round, "round")


@dataclass(frozen=True, slots=True)
class Here:
    """The sender plays rounds now, from the one after this on; before that it need not be waited for."""

    kind: ClassVar[Kind] = Kind.HERE
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0
    round: int

    def __post_init__(self) -> None:
        _number(self.round, "round")


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The sender has given the merge of this round up: nobody need wait for the rest of it."""

    kind: ClassVar[Kind] = Kind.WITHDRAW
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0
    round: int

    def __post_init__(self) -> None:
        _round(self.round)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The sender is well and waits for others in this round: whoever waits for the sender should give it more time.

    Without it one node that hangs would make its neighbours' neighbours give up on them in the same moment. Whoever is
    not so far yet answers with a Here: slow is not silent.
    """

    kind: ClassVar[Kind] = Kind.WAITING
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0
    round: int
    at: Stage  # what it waits for; its own message for that has gone out

    def __post_init__(self) -> None:
        _round(self.round)


@dataclass(frozen=True, slots=True)
class Welcome:
    """The sender has checked the other's hello and takes the link: second and last message of a handshake."""

    kind: ClassVar[Kind] = Kind.WELCOME
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Relayed:
    """Another node's vote for a round, passed on. The ledger books it as what it carries."""

    kind: ClassVar[Kind] = Kind.RELAYED
    origin: int  # whose vote it is: its place among the members in name order
    hops: int  # links that it has travelled when it arrives
    message: Vote | Ready

    def __post_init__(self) -> None:
        _number(self.origin, "origin")
        _number(self.hops, "hops")
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
    """Which members the sender misses at the other end of a link: a bit for each, in name order. Travels as news."""

    kind: ClassVar[Kind] = Kind.LOST
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0
    missing: bytes

    def __post_init__(self) -> None:
        _bytes(self.missing, "missing")


Notice = Here | Waiting | Lost


@dataclass(frozen=True, slots=True)
class News:
    """What a node says of itself to everyone, passed on by all who had not heard it."""

    kind: ClassVar[Kind] = Kind.NEWS
    stage: ClassVar[Stage] = Stage.HANDSHAKE
    payload: ClassVar[int] = 0
    origin: int  # who says it: its place among the members in name order
    number: int  # by which a second copy is known
    message: Notice

    def __post_init__(self) -> None:
        _number(self.origin, "origin")
        _number(self.number, "number")


Message = Hello | Vote | Ready | Announce | Shard | Bye | Here | Withdraw | Waiting | Welcome | Relayed | News | Lost
