"""Signed ballots: who signs different ones for different neighbours is found, and nobody else can be accused."""

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import in_process
from homes import found, invitation, join, plays, running

from p2p_tally.errors import TrustError
from p2p_tally.ids import NodeName
from p2p_tally.node.membership.witnessing import Signatures, Witnessing
from p2p_tally.protocol import frames
from p2p_tally.protocol.barrier import Arrival
from p2p_tally.protocol.evidence_messages import Echoed, Passed, Signed, Witnessed
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.scores import BEST, Standing
from p2p_tally.trust.evidence import BATCH_ROUNDS, Proof
from p2p_tally.trust.identity import Identity, make_identity

NAMES = [NodeName(name) for name in ("alice", "bob", "carol", "mallory")]
ALICE, BOB, CAROL, MALLORY = NAMES


class Circle:
    """Four members, all neighbours. Messages arrive at once, over the wire format."""

    def __init__(self, folder: Path) -> None:
        self.keys: dict[NodeName, Identity] = {name: make_identity(folder / name) for name in NAMES}
        self.proofs: dict[NodeName, list[Proof]] = {name: [] for name in NAMES}
        self.sent: list[Witnessed] = []
        self.refused: list[str] = []
        self.nodes = {name: self.node(name) for name in NAMES}

    def node(self, name: NodeName) -> Witnessing:
        def send(peers: Collection[NodeName], message: Witnessed) -> None:
            for peer in peers:
                self.deliver(name, peer, message)

        keys = {peer: [identity.credential.key] for peer, identity in self.keys.items()}
        signatures = Signatures("f" * 32, name, self.keys[name].sign, keys.__getitem__)
        others = [peer for peer in NAMES if peer != name]
        return Witnessing(signatures, lambda: NAMES, lambda _: others, send, self.proofs[name].append, 10_000)

    def deliver(self, sender: NodeName, receiver: NodeName, message: Witnessed) -> None:
        again = frames.decode(frames.encode(message), Limits(1 << 14))
        assert again == message and isinstance(again, Signed | Echoed | Passed)
        self.sent.append(again)
        try:
            self.nodes[receiver].receive(sender, again)
        except TrustError as error:
            self.refused.append(str(error))

    def play(self, rounds: range, **two_faced: NodeName) -> None:
        """All vote; mallory with another ballot for the victim, and says by a second face what it says there."""
        for round in rounds:
            for name in NAMES:
                for peer in NAMES:
                    if peer != name:
                        other = two_faced and name == MALLORY and peer == two_faced["victim"]
                        self.nodes[peer].heard(name, round, b"2" if other else b"1")
            for name in NAMES:
                self.nodes[name].sent(round, b"1")


def test_honest_members_accuse_nobody(tmp_path: Path) -> None:
    circle = Circle(tmp_path)
    circle.play(range(1, 3 * BATCH_ROUNDS + 1))
    assert not any(circle.proofs.values()) and not circle.refused
    kinds = [type(message) for message in circle.sent]
    # For each batch a signature to each neighbour, and an echo to each; nothing else.
    assert kinds.count(Signed) == 3 * 12 and kinds.count(Echoed) == 3 * 12 and kinds.count(Passed) == 0
    a_link = (len(frames.encode(circle.sent[0])) + len(frames.encode(circle.sent[-1]))) / BATCH_ROUNDS
    assert a_link < 6  # bytes a round, to each neighbour


def second_face(circle: Circle, start: int, batch: int = 0) -> Signed:
    """What mallory signs for its victim."""
    ballots = dict.fromkeys(range(batch * BATCH_ROUNDS + 1, (batch + 1) * BATCH_ROUNDS + 1), b"2")
    keys: dict[NodeName, list[bytes]] = {}
    return Signatures("f" * 32, MALLORY, circle.keys[MALLORY].sign, keys.__getitem__).sign(batch, start, ballots)


def test_who_signs_two_sets_is_found_by_all_that_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    circle = Circle(tmp_path)
    deliver = circle.deliver

    def two_faced(sender: NodeName, receiver: NodeName, message: Witnessed) -> None:
        if isinstance(message, Signed) and sender == MALLORY and receiver == BOB:
            message = second_face(circle, message.start)
        deliver(sender, receiver, message)

    monkeypatch.setattr(circle, "deliver", two_faced)
    circle.nodes[BOB].link_up(MALLORY)
    for round in range(1, BATCH_ROUNDS + 1):
        for name in NAMES:
            circle.nodes[name].sent(round, b"1")
    for name in (ALICE, BOB, CAROL):
        assert circle.proofs[name], name
        for proof in circle.proofs[name]:
            proof.check()
            assert proof.first.member == MALLORY
    assert not circle.refused


def test_who_signs_other_ballots_than_it_sent_is_refused(tmp_path: Path) -> None:
    circle = Circle(tmp_path)
    circle.play(range(1, BATCH_ROUNDS + 1), victim=BOB)
    assert circle.refused == ["it signed other ballots of rounds 1 to 32 than it sent"]
    assert not any(circle.proofs.values())  # it is bob's word alone


def test_one_that_was_started_again_is_no_liar(tmp_path: Path) -> None:
    circle = Circle(tmp_path)
    circle.play(range(1, BATCH_ROUNDS + 1))
    circle.nodes[CAROL] = circle.node(CAROL)
    for name in (ALICE, BOB, MALLORY):
        circle.nodes[name].link_up(CAROL)
    for round in range(1, BATCH_ROUNDS + 1):
        for name in (ALICE, BOB, MALLORY):
            circle.nodes[name].heard(CAROL, round, b"other")
        circle.nodes[CAROL].sent(round, b"other")
    assert not any(circle.proofs.values()) and not circle.refused


def test_an_echo_that_lies_brings_no_proof_and_one_answer(tmp_path: Path) -> None:
    circle = Circle(tmp_path)
    circle.play(range(1, BATCH_ROUNDS + 1))
    echo = next(message for message in circle.sent if isinstance(message, Echoed))
    lie = Echoed(0, echo.members, bytes(len(echo.said)))
    true_start = Echoed(0, echo.members, echo.said[:4] + bytes(16) + echo.said[20:])
    count = len(circle.sent)
    for _ in range(3):
        for message in (lie, true_start):
            circle.deliver(BOB, CAROL, message)
    assert len(circle.sent) - count <= 7 and not any(circle.proofs.values()) and not circle.refused


def test_a_forged_signature_is_refused(tmp_path: Path) -> None:
    circle = Circle(tmp_path)
    circle.play(range(1, BATCH_ROUNDS + 1))
    signed = next(message for message in circle.sent if isinstance(message, Signed))
    forged = replace(signed, root=bytes(16))
    with pytest.raises(TrustError, match="signature"):
        circle.nodes[BOB].receive(ALICE, forged)
    passed = Passed(0, forged.batch, forged.start, forged.count, forged.root, forged.signature)
    with pytest.raises(TrustError, match="signature"):
        circle.nodes[BOB].receive(CAROL, passed)
    assert circle.nodes[BOB].receive(ALICE, replace(signed, batch=99)) is Arrival.LATE
    assert not any(circle.proofs.values())


async def test_the_proof_is_kept_and_anybody_can_check_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three daemons over TLS; carol signs something else for bob."""
    alice = found(tmp_path / "alice", merge_every=0)
    async with running() as nodes:
        await nodes.start(alice)
        bob = await join(tmp_path / "bob", invitation(alice, "bob"))
        await nodes.start(bob)
        await plays(nodes.daemons["bob"])
        carol = await join(tmp_path / "carol", invitation(alice, "carol"))
        liar = await nodes.start(carol)
        send = liar.node.outbox.broadcast

        def two_faced(peers: Collection[NodeName], message: Any) -> None:
            for peer in peers:
                is_lie = isinstance(message, Signed) and peer == BOB
                send([peer], liar_signs(liar, message) if is_lie else message)

        monkeypatch.setattr(liar.node.outbox, "broadcast", two_faced)
        while not any(
            nodes.daemons[name].node.step.roster[CAROL].score.closed and home.evidence()
            for name, home in (("alice", alice), ("bob", bob))
        ):
            await plays(nodes.daemons["alice"], 1)
        standings = [nodes.daemons[name].node.step.roster[CAROL].score.standing for name in ("alice", "bob")]
        honest = nodes.daemons["alice"].node.step.roster[BOB].score.value
    assert Standing.CLOSED in standings and honest > BEST - 1
    kept = [*alice.evidence(), *bob.evidence()]
    assert kept

    def evidence(*arguments: str) -> tuple[int, str, str]:
        return in_process(["evidence", *arguments], monkeypatch, capsys)

    code, out, _ = evidence(str(kept[0]), "--home", str(tmp_path / "nowhere"), "--json")
    [row] = json.loads(out)["evidence"]
    assert code == 0 and row["member"] == "carol" and row["known"] is None
    assert row["fingerprint"] == carol.identity().fingerprint
    code, out, _ = evidence("--home", str(alice.folder if alice.evidence() else bob.folder))
    assert code == 0 and f"valid signatures by {row['fingerprint']}: a key of the member" in out
    kept[0].write_text(kept[0].read_text().replace('"start": ', '"start": 1'))
    code, _, err = evidence(str(kept[0]))
    assert code == 2 and "the signature of a statement of carol is not by the key" in err
    assert evidence("--home", str(carol.folder))[:2] == (0, "no evidence against anybody\n")


def liar_signs(daemon: Any, signed: Signed) -> Signed:
    signatures = Signatures(daemon.roll.members.federation, CAROL, daemon.roll.identity.sign, daemon.roll.keys)
    return signatures.sign(signed.batch, signed.start, {1: b"another", 2: b"ballot"})
