"""Public keys, and how a person and a file write them.

A credential is a public key (Ed25519, 32 bytes) and the signature (64 bytes) that its owner put under the certificate
of that key. Everything else in the certificate follows from the key (certificates.py), so these 96 bytes are all that
has to be passed on.

A fingerprint is what a person reads out on the telephone: 110 bits of the key's SHA-256, in Crockford's base 32, with
two check characters. Any single wrong character, and any two neighbours that changed places, are noticed.
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from p2p_tally.errors import TrustError

KEY_BYTES = 32
SIGNATURE_BYTES = 64
CREDENTIAL_BYTES = KEY_BYTES + SIGNATURE_BYTES

# Crockford's: no I, L, O or U, which are taken for 1, 1, 0 and V.
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_READ_AS = str.maketrans({"I": "1", "L": "1", "O": "0", "U": "V"})
_DATA_CHARACTERS, _CHECK_CHARACTERS, _GROUP = 22, 2, 4
# A prime below 32 ** 2: then no single wrong character leaves the remainder as it was.
_MODULUS = 1021


def fingerprint(key: bytes) -> str:
    """The fingerprint of a public key: six groups of four characters."""
    number = int.from_bytes(hashlib.sha256(key).digest(), "big") >> (256 - 5 * _DATA_CHARACTERS)
    return _written(number)


def _written(number: int) -> str:
    text = _base_32(number, _DATA_CHARACTERS) + _base_32(number % _MODULUS, _CHECK_CHARACTERS)
    return "-".join(text[start : start + _GROUP] for start in range(0, len(text), _GROUP))


def _base_32(number: int, length: int) -> str:
    return "".join(_ALPHABET[number >> 5 * place & 31] for place in reversed(range(length)))


def read_fingerprint(text: str) -> str:
    """A fingerprint as a person typed it, written as `fingerprint` writes it. A TrustError if it is none."""
    plain = text.upper().replace("-", "").replace(" ", "").translate(_READ_AS)
    if len(plain) != _DATA_CHARACTERS + _CHECK_CHARACTERS or not set(plain) <= set(_ALPHABET):
        raise TrustError(f"{text!r:.60} is no fingerprint: accepted are six groups of four letters and digits")
    number = 0
    for character in plain[:_DATA_CHARACTERS]:
        number = number << 5 | _ALPHABET.index(character)
    written = _written(number)
    if written.replace("-", "") != plain:
        raise TrustError(f"{text!r:.60} is no fingerprint: its last two characters show that one is mistyped")
    return written


@dataclass(frozen=True)
class Credential:
    """A public key, and its owner's signature under the certificate made from it."""

    key: bytes
    proof: bytes

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key)

    @property
    def raw(self) -> bytes:
        """As it is sent: 96 bytes."""
        return self.key + self.proof

    @property
    def text(self) -> str:
        """As it is written in the members' list."""
        return base64.urlsafe_b64encode(self.raw).decode()

    @classmethod
    def read(cls, text: object) -> "Credential":
        return cls.from_raw(read_base64(text, "a credential"))

    @classmethod
    def from_raw(cls, raw: bytes) -> "Credential":
        if len(raw) != CREDENTIAL_BYTES:
            raise TrustError(f"a credential has {CREDENTIAL_BYTES} bytes, not {len(raw)}")
        return cls(raw[:KEY_BYTES], raw[KEY_BYTES:])


def read_base64(text: object, what: str) -> bytes:
    """Bytes from text of base64 in its URL form. A TrustError if it is none, or not the one way to write them."""
    try:
        raw = base64.b64decode(str(text).encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise TrustError(f"{what} is not base64") from None
    if base64.urlsafe_b64encode(raw).decode() != text:
        raise TrustError(f"{what} is not base64 as we write it")
    return raw


def check_signature(key: bytes, message: bytes, signature: bytes, what: str) -> None:
    """Raise a TrustError unless the owner of this key has signed this message."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise TrustError(f"the signature of {what} is not by the key {fingerprint(key)}", reason="signature") from None
