"""Everything that reads bytes of others: what it is called with, and which errors it may raise.

A target owns no state between two inputs, except the inbox of a node, which is made anew now and then.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgpack
import numpy as np

from fuzzing import people
from fuzzing.mutations import Mutator, change_bytes, change_json, change_msgpack
from p2p_tally.errors import BallotError, FrameError, MessageError, OperatorError, ParameterError, PeerError, TrustError
from p2p_tally.node.links.addresses import parse_peers
from p2p_tally.node.membership.catching_up import Question, Reply
from p2p_tally.node.membership.invitations import Claim
from p2p_tally.node.membership.joining import read_welcome
from p2p_tally.node.membership.passing import read_request
from p2p_tally.node.merges.contributions import read_plain
from p2p_tally.page.messages import read_message
from p2p_tally.protocol import frames
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.carried import Carried, Step, decode_carried
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.checksum import checksum
from p2p_tally.protocol.evidence_messages import Echoed, Passed, Signed
from p2p_tally.protocol.frames import VERSION, Limits
from p2p_tally.protocol.handover import ArrivingState, digest_of, pieces
from p2p_tally.protocol.handover_messages import Fetch, State
from p2p_tally.protocol.list_messages import ListAsk, ListNumber, ListPart, ListRequest
from p2p_tally.protocol.messages import (
    Announce,
    Bye,
    Hello,
    Here,
    Kind,
    Lost,
    Message,
    News,
    Piece,
    Ready,
    Relayed,
    Shard,
    Stage,
    Vote,
    Waiting,
    Welcome,
    Withdraw,
)  # fmt: skip
from p2p_tally.trust.certificates import certificate, key_of
from p2p_tally.trust.chain import Chain
from p2p_tally.trust.changes import Change
from p2p_tally.trust.invitation import read_invitation
from p2p_tally.trust.keys import read_fingerprint

LIMITS = Limits.of(1024, 64, merging=True)

# The frame of a message that is repeated in a target's own code, such as labels or a learner's shapes.
COUNT, CLASSES = 48, 10


@dataclass(frozen=True)
class Target:
    """`read` returns or raises one of `declared`."""

    name: str
    read: Callable[[bytes], object]
    declared: tuple[type[Exception], ...]
    seeds: Sequence[bytes]
    change: Mutator = change_bytes
    weight: int = 8  # how many of all inputs it gets, beside the others


# --- frames


def messages() -> list[Message]:
    """One of every kind, with the fields that it may have."""
    digest = bytes(32)
    return [
        Vote(7, bytes(range(10)) * 4),
        Ready(3, 5, 16),
        Shard(8, Stage.SCATTER, 2, np.arange(32, dtype="<f4").tobytes()),
        Shard(8, Stage.GATHER, 0, bytes(64)),
        Shard(8, Stage.VECTOR, 0, bytes(64)),
        Announce(8, b"\xff\x80"),
        Announce(8, b"\xf0", b"base-of8"),
        Announce(8, b"\xf0", b"", bytes(16)),
        Bye(300), Here(12), Withdraw(8), Waiting(9, Stage.VOTE), Welcome(), Lost(b"\x0f"),
        Relayed(3, 2, Vote(7, bytes(40))),
        Relayed(3, 2, Ready(3, 5, 16)),
        News(2, 77, Here(5)), News(2, 78, Waiting(5, Stage.ANNOUNCE)), News(2, 79, Lost(b"\x01")),
        Fetch(9), State(9, 2, 8, 4096, digest), State(9, None, 0, 0, digest), Piece(0, bytes(64)),
        ListNumber(4, digest), ListAsk(1), ListPart(1, b"{}\n{}"), ListRequest(b"{}"),
        Signed(1, 1, 8, bytes(16), bytes(64)), Echoed(1, b"\xf0", bytes(80)), Passed(2, 1, 1, 8, bytes(16), bytes(64)),
    ]  # fmt: skip


def change_frame(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """As change_msgpack; half of the time the checksum of changed parameters is made to fit."""
    frame = change_msgpack(rng, seeds)
    if rng.random() < 0.5 or frame[1:2] != bytes([Kind.SHARD]):
        return frame
    try:
        kind, round, stage, part, data, _ = msgpack.unpackb(frame, use_list=False)
        packed: bytes = msgpack.packb((kind, round, stage, part, data, checksum(round, stage, part, data)))
    except Exception:
        return frame
    return packed


FIELDS = tuple((f"f{n}", f"v{n}") for n in range(6))
HELLO = Hello(VERSION, "node-1", 17, True, (0, 10, 15), ("node-0", "node-2"), "d" * 64, FIELDS)
CARRIED = [
    Carried("node-1", "node-2", 5, step, 17, data).encode() for step in Step for data in (b"", bytes(96), bytes(900))
]


# --- ballots


def _votes(seed: int, symbols: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.minimum(rng.geometric(0.3, COUNT) - 1, symbols - 1)


def _rows(seed: int, width: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(width), COUNT).astype(np.float32)


def _answers(form: BallotFormat, labels: np.ndarray | None = None) -> list[bytes]:
    found = []
    for seed in range(6):
        if form.form == "soft":
            found.append(form.encode(_rows(seed, form.classes)))
        elif form.form == "top-k":
            order = np.argsort(np.random.default_rng(seed).random((COUNT, form.classes)), axis=1)[:, : form.k]
            found.append(form.encode((order, _rows(seed, form.k))))
        elif form.form == "anchors" and seed % 2:
            names = np.full((COUNT, 1), form.classes + seed, np.float32)
            found.append(form.encode(np.concatenate([names, _rows(seed, form.classes)], 1)))
        elif form.form == "anchors":
            labels = (np.arange(COUNT) % form.classes).astype(np.float32)[:, None]
            found.append(form.encode(np.concatenate([labels, _rows(seed, form.features)], 1)))
        elif form.form.endswith("by-class"):
            counts = np.full((COUNT, 1), seed + 1, np.float32)
            found.append(form.encode(np.concatenate([counts, _rows(seed, form.features or form.classes)], 1)))
        else:
            found.append(form.encode(_votes(seed, form.symbols), labels))
    return found


LABELS = np.where(np.arange(COUNT) % 7, _votes(99, CLASSES), -1)

BALLOTS = {
    "byte": BallotFormat("byte", COUNT, CLASSES),
    "two-bytes": BallotFormat("byte", COUNT, 300),
    "packed": BallotFormat("packed", COUNT, CLASSES),
    "coded": BallotFormat("coded", COUNT, CLASSES),
    "coded-wide": BallotFormat("coded", COUNT, 50_257),
    "abstaining": BallotFormat("coded", COUNT, CLASSES, abstains=True),
    "top-k": BallotFormat("top-k", COUNT, CLASSES, 3),
    "top-k-int8": BallotFormat("top-k", COUNT, CLASSES, 3, "int8"),
    "soft": BallotFormat("soft", COUNT, CLASSES),
    "soft-float16": BallotFormat("soft", COUNT, CLASSES, 1, "float16"),
    "soft-int8": BallotFormat("soft", COUNT, CLASSES, 1, "int8"),
    "soft-by-class": BallotFormat("soft-by-class", COUNT, CLASSES),
    "features-by-class": BallotFormat("features-by-class", COUNT, CLASSES, features=12),
    "anchors": BallotFormat("anchors", COUNT, CLASSES, features=12),
}


def _ballot(name: str, form: BallotFormat, labels: np.ndarray | None = None) -> Target:
    return Target(f"ballot-{name}", lambda data: form.decode(data, labels), (BallotError,), _answers(form, labels))


# --- parameters

RUN = 1000
CHANGES = {
    "float32": ChangeFormat(), "bfloat16": ChangeFormat("bfloat16"), "int8": ChangeFormat("int8"),
    "float32-top": ChangeFormat("float32", 0.01), "int8-top": ChangeFormat("int8", 0.1),
}  # fmt: skip


def _merge(name: str, form: ChangeFormat) -> Target:
    values = [np.random.default_rng(seed).normal(size=RUN).astype(np.float32) for seed in range(4)]
    seeds = [form.encode(one) for one in values]
    return Target(f"merge-{name}", lambda data: form.decode(data, RUN), (ParameterError,), seeds)


STATE = np.arange(70_000, dtype="<f4").tobytes()


def _read_pieces(data: bytes) -> None:
    """Frames one after the other, each with its length: a state and its pieces."""
    arriving, start = None, 0
    while start + 3 <= len(data):
        length = int.from_bytes(data[start : start + 3], "big")
        message = frames.decode(data[start + 3 : start + 3 + length], LIMITS)
        start += 3 + length
        if isinstance(message, State):
            arriving = ArrivingState(message)
        elif isinstance(message, Piece) and arriving is not None and not arriving.complete:
            arriving.add(message)


def _framed(*items: Message) -> bytes:
    encoded = [frames.encode(item) for item in items]
    return b"".join(len(frame).to_bytes(3, "big") + frame for frame in encoded)


def _handed(data: bytes) -> bytes:
    return _framed(State(9, 2, 8, len(data), digest_of(data)), *pieces(data))


# --- the members' list


def _read_list(data: bytes) -> None:
    lines = data.splitlines()
    Chain(()).extended(Change.read(line) for line in lines)
    people.CHAIN.reconciled(1, [Change.read(line) for line in lines])


def _read_part(data: bytes) -> None:
    """Changes that follow what is known already: fewer signatures are checked for each input."""
    people.CHAIN.reconciled(1, [Change.read(line) for line in data.splitlines()])


PAGE = {
    "about": {"own": "node-0", "method": "tally", "rounds": 300, "nodes": 4, "topology": "mesh", "classes": 10,
              "budget": {"soft_round": 640.5, "warmup": 20, "merge": 1e5, "merge_every": 50}},
    "nodes": {"node-0": {"state": "playing", "round": 7, "accuracy": 91.5, "missing": ["node-1"],
                         "links": {"node-1": ["up", 100, 200]}, "pace": 0.1}},
    "points": {"node-0": [[7, 91.5, 0.3, 640, 800]]},
    "merges": {"node-0": [[50]]},
    "votes": [{"round": 7, "votes": {"node-0": [1, 2, -1]}, "labels": [1, 2, 3],
               "views": [None, {"text": "a b"}, {"width": 1, "height": 1, "channels": 1, "pixels": "AA=="}]}],
    "problems": [{"time": 1.5, "level": "warning", "message": "x", "node": "node-0", "round": 7}],
}  # fmt: skip


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("utf-8", "replace"))


PEERS = b"a=127.0.0.1:7001,b=[::1]:7002,c=host:7003#" + people.KEYS[people.ALICE].fingerprint.encode()


def all_targets() -> list[Target]:
    plain = [frames.encode(message) for message in messages()]
    fingerprint = people.KEYS[people.ALICE].fingerprint.encode()
    return [
        Target("frames", lambda data: frames.decode(data, LIMITS), (FrameError,), plain, change_frame, weight=80),
        Target("hello", frames.decode_hello, (FrameError,), [frames.encode(HELLO)], change_msgpack, weight=10),
        Target("carried", decode_carried, (FrameError,), CARRIED, change_msgpack, weight=16),
        *(_ballot(name, form) for name, form in BALLOTS.items()),
        *(_ballot(f"{name}-labelled", form, LABELS) for name, form in BALLOTS.items() if form.needs_labels),
        *(_merge(name, form) for name, form in CHANGES.items()),
        Target("merge-plain", lambda data: read_plain(data, RUN), (ParameterError,), [bytes(4 * RUN)]),
        Target("pieces", _read_pieces, (PeerError,), [_handed(STATE[:900]), _handed(STATE[:3000])]),
        Target("pieces-long", _read_pieces, (PeerError,), [_handed(STATE)], weight=1),
        Target("change-line", Change.read, (TrustError,), people.change_lines(), change_json, weight=3),
        Target("list-request", read_request, (TrustError,), people.request_lines(), change_json, weight=3),
        Target("list", _read_list, (TrustError,), people.change_lines(), people.change_list, weight=1),
        Target("list-part", _read_part, (TrustError,), people.change_lines(), people.change_list, weight=2),
        Target("claim", Claim.read, (TrustError,), [people.claim()], change_json, weight=3),
        Target("question", Question.read, (TrustError,), [people.question()], change_json, weight=2),
        Target("list-reply", Reply.read, (TrustError,), [people.reply()], change_json, weight=3),
        Target(
            "welcome",
            lambda data: read_welcome(data, people.INVITATION, people.KEYS[people.BOB]),
            (OperatorError,),
            [people.welcome()],
            people.change_welcome,
            weight=1,
        ),
        Target(
            "invitation",
            _text(read_invitation),
            (OperatorError,),
            [people.INVITATION.line().encode()],
            people.change_invitation,
            weight=4,
        ),
        Target("certificate", key_of, (), [certificate(key.credential) for key in people.KEYS.values()], weight=2),
        Target("fingerprint", _text(read_fingerprint), (TrustError,), [fingerprint], weight=2),
        Target("peers", _text(parse_peers), (OperatorError,), [PEERS], weight=2),
        Target("page", _read_page, (MessageError,), [json.dumps(PAGE).encode()], change_json, weight=2),
    ]


def _read_page(data: bytes) -> None:
    """As the gatherer reads it."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return
    read_message(values)
