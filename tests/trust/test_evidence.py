"""A proof is two valid signatures of one member under different ballots, and nothing less."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from p2p_tally.errors import TrustError
from p2p_tally.trust.evidence import (
    BATCH_ROUNDS,
    Proof,
    Statement,
    ballot_digest,
    batch_of,
    read_proof,
    root_of,
    rounds_of,
)
from p2p_tally.trust.identity import Identity, make_identity


@pytest.fixture(scope="module")
def mallory(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return make_identity(tmp_path_factory.mktemp("mallory"))


def statement(vote: int) -> Statement:
    ballots = {round: ballot_digest(bytes([vote])) for round in range(33, 65)}
    return Statement("f" * 32, "mallory", 1, 7, len(ballots), root_of(ballots))


def proof_by(identity: Identity, first: Statement, second: Statement) -> Proof:
    signatures = (identity.sign(first.signed_part), identity.sign(second.signed_part))
    return Proof(identity.credential.key, first, second, signatures)


def test_batches_are_runs_of_rounds() -> None:
    assert [batch_of(round) for round in (1, BATCH_ROUNDS, BATCH_ROUNDS + 1)] == [0, 0, 1]
    assert rounds_of(1) == (BATCH_ROUNDS + 1, 2 * BATCH_ROUNDS)


def test_a_proof_is_written_and_read(mallory: Identity) -> None:
    proof = proof_by(mallory, statement(1), statement(2))
    proof.check()
    again = read_proof(proof.text())
    again.check()
    assert again == proof and again.rounds == (33, 64) and again.fingerprint == mallory.fingerprint


@pytest.mark.parametrize("change", [{"federation": "g" * 32}, {"member": "bob"}, {"batch": 2}, {"start": 8}])
def test_statements_of_different_things_prove_nothing(change: dict[str, object], mallory: Identity) -> None:
    """Above all of two starts: a node that comes back from a checkpoint may vote otherwise."""
    with pytest.raises(TrustError, match="no proof"):
        proof_by(mallory, statement(1), replace(statement(2), **change)).check()  # type: ignore[arg-type]


def test_the_same_twice_proves_nothing(mallory: Identity) -> None:
    with pytest.raises(TrustError, match="say the same"):
        proof_by(mallory, statement(1), statement(1)).check()


def test_nobody_can_frame_another(mallory: Identity, tmp_path: Path) -> None:
    """One signature of the member's, and one by whoever accuses it."""
    bob = make_identity(tmp_path)
    honest, forged = statement(1), statement(2)
    signatures = (mallory.sign(honest.signed_part), bob.sign(forged.signed_part))
    with pytest.raises(TrustError, match="signature"):
        Proof(mallory.credential.key, honest, forged, signatures).check()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"key": 1, "statements": [1, 2]}', "[" * 100_000, '{"statements": [{}, {}]}', b"\xff"]
)
def test_what_is_no_proof(text: str | bytes) -> None:
    with pytest.raises(TrustError, match="no evidence"):
        read_proof(text)


def test_every_field_is_signed(mallory: Identity) -> None:
    text = proof_by(mallory, statement(1), statement(2)).text()
    for field, value in (("count", 31), ("root", "00" * 16)):
        found = json.loads(text)
        found["statements"][0][field] = value
        with pytest.raises(TrustError, match="signature"):
            read_proof(json.dumps(found)).check()
