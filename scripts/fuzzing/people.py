"""Made-up members with fixed keys: a members' list, an invitation, a claim, a question. The same in every run."""

import base64
import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fuzzing.mutations import change_bytes, change_json, changed_json
from p2p_tally.errors import ConfigError, TrustError
from p2p_tally.ids import NodeName
from p2p_tally.node.membership.catching_up import Question
from p2p_tally.node.membership.invitations import Claim
from p2p_tally.trust import invitation as invitations
from p2p_tally.trust.certificates import credential_of
from p2p_tally.trust.chain import Chain, consent
from p2p_tally.trust.changes import Change, Details, Kind, Request, canonical, sign
from p2p_tally.trust.identity import Identity
from p2p_tally.trust.invitation import PREFIX, Invitation

ALICE, BOB, CAROL = (NodeName(name) for name in ("alice", "bob", "carol"))


def identity(name: str) -> Identity:
    private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())
    return Identity(private, credential_of(private), Path())


KEYS = {name: identity(name) for name in (ALICE, BOB, CAROL)}


def _chain() -> Chain:
    details = Details(
        credential=KEYS[ALICE].credential.text,
        address="10.0.0.1:7001",
        options="0" * 64,
        probes="1" * 64,
        nonce="2" * 32,
    )
    request = Request("", Kind.FOUND, ALICE, ALICE, 0, details).signed(KEYS[ALICE])
    chain = Chain(()).extended([Change(1, "", 1, ALICE, request).signed(KEYS[ALICE])])
    for name in (BOB, CAROL):
        address = f"10.0.0.{len(name)}:7001"
        agreed = consent(KEYS[name], chain.members.federation, name, address)
        details = Details(credential=KEYS[name].credential.text, address=address, consent=agreed)
        chain = chain.ordered(KEYS[ALICE], chain.request(KEYS[ALICE], ALICE, Kind.JOIN, name, details), 4)
    chain = chain.ordered(KEYS[ALICE], chain.request(KEYS[ALICE], ALICE, Kind.SUCCESSOR, BOB, Details()), 6)
    moved = chain.request(KEYS[CAROL], CAROL, Kind.ADDRESS, CAROL, Details(address="10.0.0.9:7001"))
    return chain.ordered(KEYS[ALICE], moved, 8)


CHAIN = _chain()
INVITATION = Invitation(
    CHAIN.members.federation, NodeName("dave"), ALICE, "10.0.0.1:7001", KEYS[ALICE].credential, b"s" * 16, 2**31
)


def change_lines() -> list[bytes]:
    return [change.line().encode() for change in CHAIN.changes]


def request_lines() -> list[bytes]:
    return [canonical(change.request.line()) for change in CHAIN.changes]


def claim() -> bytes:
    key, name = identity("dave"), INVITATION.name
    agreed = consent(key, INVITATION.federation, name, "10.0.0.4:7001")
    made = Claim(INVITATION.federation, INVITATION.number, name, key.credential.text, "10.0.0.4:7001", agreed)
    return made.proved(INVITATION).line()


def question() -> bytes:
    members, lines = CHAIN.members, tuple(change.line() for change in CHAIN.changes[2:])
    asked = KEYS[ALICE].credential.key.hex()
    made = Question(members.federation, BOB, members.number, members.digest, asked, 1, 3, lines)
    return canonical({**vars(made), "signatures": (sign(KEYS[BOB], made.signed_part),)})


def reply() -> bytes:
    values = {"number": 5, "digest": CHAIN.members.digest, "changes": [line.decode() for line in change_lines()]}
    return json.dumps(values).encode()


def welcome() -> bytes:
    """The answer to a newcomer whose options and probes are `options` and `probes`."""
    parts = [CHAIN.text().encode(), b"options", b"probes"]
    return json.dumps({"parts": [len(part) for part in parts], "time": 1.7e9}).encode() + b"\n" + b"".join(parts)


# --- with signatures and checksums that are right, so that what is behind them is reached


def change_list(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Lines of a list, of which one is another change: as it comes, or with its numbers and signatures made to fit."""
    lines = list(seeds)
    place = int(rng.random() * len(lines))
    if rng.random() < 0.5:
        lines[place] = change_json(rng, [lines[place]])
    else:
        lines[place] = _signed(rng, json.loads(lines[place]))
    if rng.random() < 0.1:
        rng.shuffle(lines)
    return b"\n".join(lines[: place + 1] if rng.random() < 0.7 else lines)


def _signed(rng: random.Random, values: dict[str, Any]) -> bytes:
    request = values["request"]
    what = rng.random()
    if what < 0.6:
        request["kind"] = rng.choice([kind.value for kind in Kind])
        request["name"], request["by"] = (rng.choice((ALICE, BOB, CAROL, "dave")) for _ in range(2))
    if what > 0.5:
        request = values["request"] = changed_json(rng, request)
    if what > 0.8:
        values = changed_json(rng, values)
    try:
        found = Request.read(request)
        request = found.signed(KEYS.get(found.by, KEYS[ALICE])).line()
        change = Change.read(json.dumps({**values, "request": request}))
        return change.signed(KEYS.get(change.orderer, KEYS[ALICE])).line().encode()
    except (TrustError, ConfigError, TypeError, ValueError, AttributeError):
        return json.dumps(values).encode()


def change_invitation(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """A line whose checksum mostly fits what it says."""
    if rng.random() < 0.3:
        return change_bytes(rng, seeds)
    text = seeds[0].decode().removeprefix(PREFIX)
    body = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))[:-6]
    changed = change_json(rng, [body])
    raw = changed + invitations._check(changed)
    return PREFIX.encode() + base64.urlsafe_b64encode(raw).rstrip(b"=")


def change_welcome(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """The head or the rest of an answer to a newcomer is another."""
    head, _, rest = seeds[0].partition(b"\n")
    if rng.random() < 0.6:
        return change_json(rng, [head]) + b"\n" + rest
    return change_bytes(rng, seeds)
