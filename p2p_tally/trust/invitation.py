"""An invitation: one line of text that lets one node in, once.

It says which federation, where the inviter is and by which key it is known, and a secret. It ends with a checksum, so
that a line cut short by a mail program is noticed. Whoever has the line can use it: send it as you would a password.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass

from p2p_tally.errors import ConfigError, TrustError
from p2p_tally.ids import NodeName, node_name
from p2p_tally.trust.keys import Credential, read_base64

PREFIX = "p2p-tally-"
SECRET_BYTES = 16
_CHECK_BYTES = 6
_LONGEST = 4096


@dataclass(frozen=True)
class Invitation:
    federation: str  # its id
    name: NodeName  # of who is invited
    inviter: NodeName
    address: str  # of the inviter, HOST:PORT
    credential: Credential  # of the inviter
    secret: bytes
    expires: int  # seconds since 1970, by the inviter's clock

    @property
    def number(self) -> str:
        """What the inviter files it under. It does not give the secret away."""
        return hashlib.sha256(b"p2p-tally invitation" + self.secret).hexdigest()[:16]

    def prove(self, claim: bytes) -> bytes:
        """Shows that who makes this claim has the secret."""
        return hmac.digest(self.secret, claim, "sha256")

    def line(self) -> str:
        body = json.dumps(
            [
                self.federation,
                self.name,
                self.inviter,
                self.address,
                self.credential.text,
                base64.urlsafe_b64encode(self.secret).decode(),
                self.expires,
            ],
            separators=(",", ":"),
        ).encode()
        return PREFIX + base64.urlsafe_b64encode(body + _check(body)).decode().rstrip("=")


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def read_invitation(line: str) -> Invitation:
    """The invitation that a person pasted. A ConfigError that says what is wrong with the line."""
    text = "".join(line.split())  # a mail program may have wrapped it
    shown = text if len(text) <= 24 else f"{text[:20]}..."
    if not text.startswith(PREFIX):
        raise ConfigError(f"{shown}: no invitation; accepted is the line that p2p-tally invite prints")
    if len(text) > _LONGEST:
        raise ConfigError(f"{shown}: no invitation: {len(text)} characters, the longest has {_LONGEST}")
    encoded = text.removeprefix(PREFIX)
    try:
        raw = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    body, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
    if not hmac.compare_digest(_check(body), check):
        raise ConfigError(f"{shown}: an invitation cut short or altered; copy the whole line again")
    try:
        federation, name, inviter, address, credential, secret, expires = json.loads(body)
        return Invitation(
            str(federation),
            node_name(name),
            node_name(inviter),
            str(address),
            Credential.read(credential),
            read_base64(secret, "the secret"),
            int(expires),
        )
    except (ValueError, TypeError, OverflowError, RecursionError, TrustError):
        raise ConfigError(f"{shown}: an invitation of another version of p2p-tally") from None


def _check(body: bytes) -> bytes:
    return hashlib.sha256(b"p2p-tally invitation line" + body).digest()[:_CHECK_BYTES]
