"""Whether two nodes belong to the same federation. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from p2p_tally.errors import HandshakeError
from p2p_tally.ids import Digest, digest
from p2p_tally.protocol.frames import VERSION
from p2p_tally.protocol.messages import Hello

# Options that peers tell each other and need not share: a difference is logged at both ends, and refused at neither.
TOLD = ("lr", "weight_decay", "batch")


def agreed_fields(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The values that peers compare, as text to compare and to show."""
    return tuple((name, str(value)) for name, value in values.items())


def fields_digest(fields: Iterable[tuple[str, str]]) -> Digest:
    """Of the values that peers must share."""
    return digest(*(part.encode() for field in fields if field[0] not in TOLD for part in field))


def told_differences(own: Iterable[tuple[str, str]], theirs: Iterable[tuple[str, str]]) -> list[str]:
    """What two peers of one federation have different, though they may."""
    ours, others = dict(own), dict(theirs)
    return [
        f"{name} is {ours[name]:.200} here, {others[name]:.200} there"
        for name in TOLD
        if name in ours and name in others and ours[name] != others[name]
    ]


def check_hello(own: Hello, theirs: Hello, expected: Iterable[str]) -> None:
    """Raise a HandshakeError that names the first field that differs, with both values."""
    if theirs.version != VERSION:
        raise HandshakeError(f"protocol version is {VERSION} here, {theirs.version} there", reason="version")
    if theirs.name == own.name:
        raise HandshakeError(f"name is {own.name} at both ends", reason="name")
    if theirs.name not in expected:
        raise HandshakeError(f"{theirs.name:.80} is no neighbour of {own.name}", reason="stranger")
    if fields_digest(theirs.fields) != theirs.digest:
        raise HandshakeError("the digest is not that of the fields", reason="digest")
    if theirs.digest == own.digest:
        _check_round(dict(own.fields), theirs)
        return
    ours, others = dict(own.fields), dict(theirs.fields)
    for name in [*ours, *(name for name in others if name not in ours)]:
        if name not in TOLD and ours.get(name) != others.get(name):
            here, there = ours.get(name, "not set"), others.get(name, "not set")
            raise HandshakeError(f"{name:.80} is {here:.200} here, {there:.200} there", reason="mismatch")
    raise HandshakeError("the fields stand in another order", reason="mismatch")


def _check_round(fields: Mapping[str, str], theirs: Hello) -> None:
    last = int(fields.get("rounds", theirs.round))
    if theirs.round > last:
        raise HandshakeError(f"round {theirs.round} of {last}", reason="mismatch")
