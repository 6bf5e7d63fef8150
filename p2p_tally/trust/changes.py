"""One change of the members' list: what a member asked for and signed, and its place in the list, signed by who orders.

A change is one line of JSON with names that a person can read. What is signed is that line without the signature, with
its keys sorted and without spaces, so that there is one way to write it.
"""

import base64
import hashlib
import json
import re
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Protocol

from p2p_tally.errors import ConfigError, TrustError
from p2p_tally.ids import NodeName, node_name
from p2p_tally.trust.keys import SIGNATURE_BYTES, Credential, read_base64

# No line is longer than this. The longest, a join, has about 900 bytes.
LINE_BYTES = 4096
MOST_ROUNDS = 2**53
_HEX = re.compile(r"[0-9a-f]{0,64}")


class Kind(StrEnum):
    FOUND = "found"  # the first change: makes the federation
    JOIN = "join"  # a newcomer, asked for by a member that may invite
    LEAVE = "leave"  # a member goes for good
    REMOVE = "remove"  # a member is put out
    ADDRESS = "address"  # a member can be reached elsewhere
    ROTATE = "rotate"  # a member has another key
    ALLOW = "allow"  # a member may invite
    SUCCESSOR = "successor"  # who may take over the ordering of changes
    TAKE_OVER = "take-over"  # the successor orders changes from now on


class Signer(Protocol):
    """Who signs: an identity."""

    def sign(self, message: bytes) -> bytes: ...


@dataclass(frozen=True)
class Details:
    """What a kind of change says besides; empty where it says nothing."""

    credential: str = ""  # found, join, rotate: the member's key
    address: str = ""  # found, join, address: HOST:PORT; "" if nobody can dial it
    consent: str = ""  # join: the newcomer's signature
    options: str = ""  # found: digest of the agreed options
    probes: str = ""  # found: digest of the file of probes
    nonce: str = ""  # found: makes two federations of one founder different

    def written(self) -> dict[str, str]:
        return {field.name: getattr(self, field.name) for field in fields(self) if getattr(self, field.name)}


# What each kind must say. An address may be empty: it is then not written.
_NEEDED = {
    Kind.FOUND: {"credential", "options", "probes", "nonce"},
    Kind.JOIN: {"credential", "consent"},
    Kind.ROTATE: {"credential"},
}
_ALLOWED = {Kind.FOUND: {"address"}, Kind.JOIN: {"address"}, Kind.ADDRESS: {"address"}}


@dataclass(frozen=True)
class Request:
    """What a member asks for."""

    federation: str  # its id; "" in the change that founds it
    kind: Kind
    name: NodeName  # whom it is about
    by: NodeName  # who asks
    after: int  # the number of the last change that the asker knew: an old request cannot be used again
    details: Details
    signature: str = ""

    def written(self) -> dict[str, Any]:
        return {
            "federation": self.federation,
            "kind": self.kind.value,
            "name": self.name,
            "by": self.by,
            "after": self.after,
            "details": self.details.written(),
        }

    @property
    def signed_part(self) -> bytes:
        return b"p2p-tally request\n" + canonical(self.written())

    def signed(self, by: Signer) -> "Request":
        return Request(
            self.federation, self.kind, self.name, self.by, self.after, self.details, sign(by, self.signed_part)
        )

    def line(self) -> dict[str, Any]:
        return {**self.written(), "signature": self.signature}

    @classmethod
    def read(cls, values: Any) -> "Request":
        """A request from JSON; a TrustError if it is none. Its signature is not checked here."""
        keys = {"federation", "kind", "name", "by", "after", "details", "signature"}
        _check_keys(values, keys, "a request")
        try:
            kind = Kind(values["kind"])
            name, by = node_name(values["name"]), node_name(values["by"])
        except (ValueError, TypeError, ConfigError) as error:
            raise TrustError(f"a request that cannot be read: {error!s:.120}") from None
        details = values["details"]
        needed = _NEEDED.get(kind, set())
        known = needed | _ALLOWED.get(kind, set())
        if not isinstance(details, dict) or not needed <= details.keys() <= known:
            raise TrustError(f"the details of a {kind} are not those of this version")
        if not all(isinstance(value, str) and value for value in details.values()):
            raise TrustError(f"a detail of a {kind} is no text")
        request = cls(
            _hex(values["federation"], "federation"),
            kind,
            name,
            by,
            _number(values["after"], "after", 0),
            Details(**details),
            _signature(values["signature"]),
        )
        if "credential" in details:
            Credential.read(details["credential"])
        return request


@dataclass(frozen=True)
class Change:
    """A request with its place in the list, and the round from which it holds."""

    number: int  # from 1
    previous: str  # digest of the change before it; "" for the first
    round: int  # the first round in which it holds
    orderer: NodeName
    request: Request
    signature: str = ""

    def written(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "previous": self.previous,
            "round": self.round,
            "orderer": self.orderer,
            "request": self.request.line(),
        }

    @property
    def signed_part(self) -> bytes:
        return b"p2p-tally change\n" + canonical(self.written())

    def signed(self, by: Signer) -> "Change":
        return Change(self.number, self.previous, self.round, self.orderer, self.request, sign(by, self.signed_part))

    @property
    def digest(self) -> str:
        return hashlib.sha256(canonical({**self.written(), "signature": self.signature})).hexdigest()

    def line(self) -> str:
        """The line of the file, in the order in which a person would read it."""
        return json.dumps({**self.written(), "signature": self.signature}, separators=(", ", ": "))

    @classmethod
    def read(cls, line: str | bytes) -> "Change":
        """A change from its line; a TrustError if it is none. Its signatures are not checked here."""
        if len(line) > LINE_BYTES:
            raise TrustError(f"a change of {len(line)} bytes; the longest has {LINE_BYTES}")
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            raise TrustError("a change that is no JSON") from None
        _check_keys(values, {"number", "previous", "round", "orderer", "request", "signature"}, "a change")
        try:
            orderer = node_name(values["orderer"])
        except (TypeError, ConfigError):
            raise TrustError("a change without the name of who ordered it") from None
        return cls(
            _number(values["number"], "number", 1),
            _hex(values["previous"], "previous"),
            _number(values["round"], "round", 1),
            orderer,
            Request.read(values["request"]),
            _signature(values["signature"]),
        )


def canonical(values: dict[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def sign(by: Signer, message: bytes) -> str:
    return base64.urlsafe_b64encode(by.sign(message)).decode()


def consent_part(federation: str, name: str, credential: str, address: str) -> bytes:
    """What a newcomer signs: that it wants to be this member of this federation."""
    values = {"federation": federation, "name": name, "credential": credential, "address": address}
    return b"p2p-tally consent\n" + canonical(values)


def _check_keys(values: Any, keys: set[str], what: str) -> None:
    if not isinstance(values, dict) or values.keys() != keys:
        raise TrustError(f"{what} does not have the fields of this version")


def _number(value: Any, what: str, least: int) -> int:
    if type(value) is not int or not least <= value <= MOST_ROUNDS:
        raise TrustError(f"{what} is {value!r:.40}, not a whole number from {least}")
    return value


def _hex(value: Any, what: str) -> str:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise TrustError(f"{what} is {value!r:.40}, not a digest")
    return value


def _signature(value: Any) -> str:
    if len(read_base64(value, "a signature")) != SIGNATURE_BYTES:
        raise TrustError("a signature of the wrong length")
    return str(value)
