"""Self-signed certificates of keys, and TLS contexts that trust exactly the certificates given to them.

There is no authority and no host name: a certificate is only the form in which TLS carries a key. So all fields but the
key are fixed, it never expires (a clock that is wrong by a day does no harm), and the same key always gives the same
bytes. Who may connect follows from the members' list.
"""

import ssl
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from p2p_tally.errors import TrustError
from p2p_tally.trust.keys import Credential, check_signature, fingerprint

_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)  # "no expiry", RFC 5280, 4.1.2.5

# The algorithm identifier of Ed25519 signatures in DER, RFC 8410.
_ED25519 = bytes.fromhex("300506032b6570")


@lru_cache(maxsize=4096)
def _body(key: bytes) -> bytes:
    """What the owner signs: the certificate of a public key without its signature."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, fingerprint(key))])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(Ed25519PublicKey.from_public_bytes(key))
        .serial_number(1)
        .not_valid_before(_FIRST)
        .not_valid_after(_LAST)
    )
    # The body does not depend on who signs it, so any key will do.
    return builder.sign(Ed25519PrivateKey.from_private_bytes(bytes(32)), None).tbs_certificate_bytes


def credential_of(private: Ed25519PrivateKey) -> Credential:
    key = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return Credential(key, private.sign(_body(key)))


def check_credential(credential: Credential) -> None:
    """Raise a TrustError unless it was made by the owner of its key."""
    try:
        Ed25519PublicKey.from_public_bytes(credential.key)
    except ValueError:
        raise TrustError("a credential whose key is no Ed25519 key") from None
    check_signature(credential.key, _body(credential.key), credential.proof, "a certificate")


def certificate(credential: Credential) -> bytes:
    """The certificate in DER."""
    signature = b"\x03" + _length(len(credential.proof) + 1) + b"\x00" + credential.proof
    content = _body(credential.key) + _ED25519 + signature
    return b"\x30" + _length(len(content)) + content


def _length(count: int) -> bytes:
    """A length in DER."""
    if count < 0x80:
        return bytes([count])
    encoded = count.to_bytes((count.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(encoded)]) + encoded


def key_of(der: bytes | None) -> bytes | None:
    """The public key in a certificate that TLS has shown; None if there is none, or it is none of ours."""
    if der is None:
        return None
    try:
        found = x509.load_der_x509_certificate(der).public_key()
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        return None
    return found.public_bytes(Encoding.Raw, PublicFormat.Raw) if isinstance(found, Ed25519PublicKey) else None


def credential_shown(der: bytes | None) -> Credential | None:
    """The credential in a certificate that TLS has shown; None if there is none, or it is none of ours."""
    key = key_of(der)
    if der is None or key is None:
        return None
    credential = Credential(key, x509.load_der_x509_certificate(der).signature)
    return credential if certificate(credential) == der else None


# --- TLS


def accepting(identity_file: Path, members: Iterable[Credential]) -> ssl.SSLContext:
    """For the side that is dialled: it shows its own certificate and accepts those of these members.

    Who has no certificate is let in as far as TLS goes: it may only ask to be admitted (an invitation). To take a key
    away needs a new context; a ticket would let its owner in without a certificate, so there are none.
    """
    return _context(ssl.PROTOCOL_TLS_SERVER, identity_file, members, ssl.CERT_OPTIONAL)


def dialling(identity_file: Path | None, peer: Credential) -> ssl.SSLContext:
    """For the side that dials: it accepts this peer and nobody else. Without an identity it shows no certificate."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, identity_file, [peer], ssl.CERT_REQUIRED)


def asking() -> ssl.SSLContext:
    """For the side that dials and does not know the other's certificate: it accepts any, and shows none of its own.

    The caller must compare what is shown with what it has pinned before it says anything.
    """
    return _context(ssl.PROTOCOL_TLS_CLIENT, None, [], ssl.CERT_NONE)


def _context(
    side: int, identity_file: Path | None, trusted: Iterable[Credential], verify: ssl.VerifyMode
) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = verify
    if side == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    if identity_file is not None:
        context.load_cert_chain(identity_file)
    for credential in trusted:
        context.load_verify_locations(cadata=certificate(credential))
    return context
