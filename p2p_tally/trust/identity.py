"""The key of one node: made once, kept in the node's home, never sent.

The file holds the private key and its certificate, as TLS reads them, and nobody but its owner may read it.
"""

import os
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from p2p_tally.errors import ConfigError
from p2p_tally.files import sync_folder
from p2p_tally.trust.certificates import certificate, credential_of
from p2p_tally.trust.keys import Credential

FILE = "identity.pem"
# While a key is being replaced: the next one, which the members' list does not name yet.
NEXT_FILE = "identity-next.pem"


@dataclass(frozen=True)
class Identity:
    """A private key, and the file that holds it."""

    private: Ed25519PrivateKey
    credential: Credential
    file: Path

    @property
    def fingerprint(self) -> str:
        return self.credential.fingerprint

    def sign(self, message: bytes) -> bytes:
        return self.private.sign(message)


def make_identity(home: Path, file: str = FILE) -> Identity:
    """A new key in this home. Whoever finds the file finds it whole."""
    path = home / file
    private = Ed25519PrivateKey.generate()
    credential = credential_of(private)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    pem += ssl.DER_cert_to_PEM_cert(certificate(credential))
    part = path.with_suffix(".part")
    try:
        home.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)  # of a process that died here
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
            handle.write(pem)
            handle.flush()
            os.fsync(handle.fileno())
        part.rename(path)
        sync_folder(home)
    except OSError as error:
        raise ConfigError(f"--home {home}: {error.strerror}; accepted is a folder that can be made") from None
    return Identity(private, credential, path)


def load_identity(home: Path, file: str = FILE) -> Identity | None:
    """The key of this home; None if it has none. A ConfigError if it is damaged, or others can read it."""
    path = home / file
    try:
        mode = path.stat().st_mode
        pem = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"{path}: others can read this key; make it yours alone: chmod 600 {path}")
    try:
        private = load_pem_private_key(pem, None)
    except ValueError:
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise ConfigError(f"{path}: holds no Ed25519 key; restore it, or remove it and run: p2p-tally identity")
    return Identity(private, credential_of(private), path)


def adopt_next(home: Path) -> None:
    """The next key becomes the key. Nothing happens where there is no next key."""
    if (home / NEXT_FILE).exists():
        (home / NEXT_FILE).replace(home / FILE)
        sync_folder(home)
