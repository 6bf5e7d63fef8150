"""Lies as functions: of logits, of vectors, of messages."""

import numpy as np
import pytest
import torch
from conftest import small

from p2p_tally.attacks import answers, vectors
from p2p_tally.attacks.kinds import KINDS, About, attacks
from p2p_tally.attacks.messages import FalseMessages
from p2p_tally.ids import NodeName
from p2p_tally.node.links.false_outbox import FalseOutbox
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.ledger import Ledger
from p2p_tally.protocol.messages import Announce, Shard, Stage, Vote

LOGITS = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
HONEST = np.array([[1.0, 0.0, 2.0], [3.0, 0.0, 4.0]], np.float32)
OWN = np.array([1.0, -2.0, 2.0], np.float32)


def attack(text: str):
    (one,) = attacks(small(nodes=4, attack=text))
    return one


def draw() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("text", "votes"), [("flip:1", [1, 2]), ("second-choice:1", [2, 2]), ("targeted:0-1:1", [1, 1])]
)
def test_what_is_voted(text: str, votes: list[int]) -> None:
    one = attack(text)
    said = answers.LIES[one.kind.name](LOGITS, one, draw())
    assert said.argmax(-1).tolist() == votes
    assert sorted(said[0].tolist()) == sorted(LOGITS[0].tolist())  # probabilities change places, none is invented


def test_random_votes_are_of_every_class_and_of_the_seed() -> None:
    one, logits = attack("random:1"), torch.zeros(600, 3)
    said = answers.LIES["random"](logits, one, draw())
    assert np.bincount(said.argmax(-1), minlength=3).min() > 150
    assert torch.equal(said, answers.LIES["random"](logits, one, draw()))


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("sign:1", [-1, 2, -2]),
        ("scale:3:1", [3, -6, 6]),
        ("alie:2:1", [0, 0, 1]),
        ("ipm:0.5:1", [-1, 0, -1.5]),
        ("mimic:1", [1, 0, 2]),
        ("selfish:1", [-1, 0, 0]),  # with (1, 0, 2) and (3, 0, 4) the mean of three is (1, 0, 2)
        ("selfish:2", [0, 0, 1]),  # and of four, two of which say this
        ("noise:0:1", [1, -2, 2]),
        ("nan:1", [np.nan] * 3),
    ],
)
def test_what_is_contributed(text: str, given: list[float]) -> None:
    one = attack(text)
    said = vectors.LIES[one.kind.name](OWN.copy(), HONEST, one, draw())
    np.testing.assert_allclose(said, np.array(given, np.float32))
    assert said.dtype == np.float32


def test_noise_is_as_large_as_told() -> None:
    own = np.full(20_000, 2.0, np.float32)
    said = vectors.LIES["noise"](own, own[None], attack("noise:10:1"), draw())
    assert 19 < (said - own).std() < 21


def test_every_kind_has_its_function() -> None:
    for kind in KINDS.values():
        if kind.about is About.PARAMETERS:
            assert kind.name in vectors.LIES
        if kind.about is About.ANSWERS:
            assert kind.name in answers.LIES or kind.knows_others


@pytest.mark.parametrize("form", ["byte", "packed", "coded", "soft", "top-k"])
def test_an_equivocator_tells_every_other_peer_something_else(form) -> None:
    ballots = BallotFormat(form, 2, 3, k=2)
    soft = LOGITS.softmax(-1).numpy()
    top = np.array([[0, 2], [1, 2]]), np.array([[0.6, 0.4], [0.6, 0.4]], np.float32)
    answer = {"soft": soft, "top-k": top}.get(form, np.array([0, 1]))
    vote = Vote(1, ballots.encode(answer, np.array([-1, -1])))
    lies = FalseMessages([attack("equivocate:1")], ballots, lambda _: np.array([-1, -1]), True)
    assert lies.said(0, vote) is vote
    told = lies.said(1, vote)
    assert isinstance(told, Vote) and told != vote
    ballots.decode(told.ballot, np.array([-1, -1]))  # it is a valid ballot


def test_announcements_and_parameters_differ_too() -> None:
    lies = FalseMessages([attack("equivocate:1")], BallotFormat("byte", 2, 3), lambda _: None, True)
    assert lies.said(1, Announce(1, b"\xf0")) == Announce(1, b"\x70")
    told = lies.said(1, Shard(1, Stage.GATHER, 0, OWN.tobytes()))
    assert isinstance(told, Shard) and np.array_equal(np.frombuffer(told.data, "<f4"), -OWN)


class Links:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, _peer: NodeName, frame: bytes) -> bool:
        self.sent.append(frame)
        return True

    def masks(self, _peer: NodeName) -> bool:
        return False


def test_what_is_withheld_is_neither_sent_nor_counted() -> None:
    lies = FalseMessages([attack("withhold:vote:1")], BallotFormat("byte", 2, 3), lambda _: None, True)
    links, ledger = Links(), Ledger()
    outbox = FalseOutbox(NodeName("a"), links, ledger, lies, lambda _: 0)  # type: ignore[arg-type]
    outbox.broadcast([NodeName("b")], Vote(1, b"\x00\x01"))
    assert not links.sent and not ledger.settle()
    outbox.broadcast([NodeName("b")], Announce(1, b""))
    assert len(links.sent) == 1
