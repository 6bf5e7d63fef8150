"""A node's home: its key, the members' list, what all members share, and what is this node's own.

    identity.pem        this node's key                    identity-next.pem   while the key is being replaced
    members.jsonl       the members' list                  federation.toml     the options that all members share
    probes.npz          the public probes                  node.toml           this node's own options
    invitations/        those that this node has made      requests/           what commands ask the daemon for
    run/                checkpoints, record, model         lock                held by the daemon while it runs
    evidence/           proofs against members

The list is written last: a home without it has no federation, and the command that was interrupted does it all again.
Every file is written under another name, synced and renamed.
"""

import contextlib
import hashlib
import os
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

from p2p_tally.errors import ConfigError
from p2p_tally.files import locked, sync_folder, write_whole
from p2p_tally.ids import NodeName
from p2p_tally.node.membership.points import reached
from p2p_tally.trust.chain import FILE as LIST_FILE
from p2p_tally.trust.chain import Chain, load_chain
from p2p_tally.trust.evidence import Proof
from p2p_tally.trust.identity import FILE as IDENTITY_FILE
from p2p_tally.trust.identity import NEXT_FILE, Identity, adopt_next, load_identity, make_identity
from p2p_tally.trust.members import Members

OPTIONS_FILE, OWN_FILE, PROBES_FILE = "federation.toml", "node.toml", "probes.npz"
EVIDENCE = "evidence"
DEFAULT_HOME = Path("~/.p2p-tally")

# Proofs that are kept. One is enough to remove a member; a member could make any number of them.
MOST_PROOFS = 256


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Home:
    """The folder of one node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser()
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"--home {folder}: a file; accepted is a folder, which is made where there is none")

    # --- the key

    def identity(self) -> Identity:
        """This node's key, which is made where there is none."""
        found = load_identity(self.folder)
        if found is not None:
            return found
        if self.has_federation:
            raise ConfigError(
                f"{self.folder / IDENTITY_FILE}: missing, and the members' list names this node by it; "
                "restore it from a copy, or have this node removed and invited again"
            )
        return self._make_identity(IDENTITY_FILE)

    def member_identity(self, members: Members, name: NodeName) -> Identity:
        """The key by which the list knows this node. A replacement that was interrupted is completed."""
        following = load_identity(self.folder, NEXT_FILE)
        member = members.current.get(name)
        if following is not None and member is not None and member.credential.key == following.credential.key:
            self.adopt_next_identity()
        return self.identity()

    def next_identity(self) -> Identity:
        """The key that is to replace this node's; the same one until it has."""
        return load_identity(self.folder, NEXT_FILE) or self._make_identity(NEXT_FILE)

    def adopt_next_identity(self) -> None:
        reached("before identity.pem")
        adopt_next(self.folder)
        reached("after identity.pem")

    def _make_identity(self, file: str) -> Identity:
        reached(f"before {file}")
        self._make_folder()
        made = make_identity(self.folder, file)
        reached(f"after {file}")
        return made

    # --- the federation

    @property
    def has_federation(self) -> bool:
        return (self.folder / LIST_FILE).exists()

    def chain(self) -> Chain:
        return load_chain(self.folder)

    def save_chain(self, chain: Chain) -> None:
        reached("before members.jsonl")
        chain.save(self.folder)
        reached("after members.jsonl")

    def shared_options(self, members: Members) -> dict[str, Any]:
        """What all members share: options, and the file of probes. A ConfigError if one of the files was altered."""
        text = self._read(OPTIONS_FILE)
        for file, content, expected in (
            (OPTIONS_FILE, text, members.options),
            (PROBES_FILE, self._read(PROBES_FILE), members.probes),
        ):
            if sha256(content) != expected:
                raise ConfigError(
                    f"{self.folder / file}: not the file that the federation was founded with; "
                    f"put a copy of another member's in its place"
                )
        return self._toml(OPTIONS_FILE, text) | {"probes": f"{self._probes_kind()}:{self.folder / PROBES_FILE}"}

    def _probes_kind(self) -> str:
        """Which source reads the file of probes: of a text it has the tokenizer, too."""
        try:
            with zipfile.ZipFile(self.folder / PROBES_FILE) as archive:
                return "tokens" if "tokenizer.npy" in archive.namelist() else "npz"
        except zipfile.BadZipFile:
            return "npz"  # whose error says what is wrong

    def probes(self) -> bytes:
        return self._read(PROBES_FILE)

    def options_text(self) -> bytes:
        return self._read(OPTIONS_FILE)

    def save_shared(self, options: bytes, probes: bytes) -> None:
        self._write(PROBES_FILE, probes)
        self._write(OPTIONS_FILE, options)

    # --- what is this node's own

    def own_options(self) -> dict[str, Any]:
        """Name, address, data and the like; empty where the file is missing."""
        path = self.folder / OWN_FILE
        return self._toml(OWN_FILE, path.read_bytes()) if path.exists() else {}

    def save_own(self, values: Mapping[str, Any]) -> None:
        written = {key: str(value) if isinstance(value, Path) else value for key, value in sorted(values.items())}
        self._write(OWN_FILE, tomli_w.dumps(written).encode())

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def evidence(self) -> list[Path]:
        """The files of proofs against members."""
        return sorted((self.folder / EVIDENCE).glob("*.json"))

    def keep_proof(self, proof: Proof) -> bool:
        """Write a proof. False: it is there already, or there are too many."""
        path = self.folder / EVIDENCE / proof.file
        if path.exists() or len(self.evidence()) >= MOST_PROOFS:
            return False
        write_whole(path, proof.text(), sync=True)
        return True

    @property
    def requests(self) -> Path:
        return self.folder / "requests"

    @property
    def invitations(self) -> Path:
        return self.folder / "invitations"

    # --- who uses it

    @contextmanager
    def held(self) -> Iterator[None]:
        """While the daemon runs: no second one starts in this home."""
        self._make_folder()
        try:
            with locked(self.folder / "lock", wait=False):
                yield
        except BlockingIOError:
            raise ConfigError(f"--home {self.folder}: a node runs there already") from None

    @property
    def in_use(self) -> bool:
        """Whether a daemon runs in this home."""
        if not (self.folder / "lock").exists():
            return False
        try:
            with locked(self.folder / "lock", wait=False):
                return False
        except BlockingIOError:
            return True

    # --- files

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"--home {self.folder}: {error.strerror}; accepted is a folder that can be made"
            ) from None

    def _write(self, file: str, content: bytes) -> None:
        reached(f"before {file}")
        self._make_folder()
        write_whole(self.folder / file, content, sync=True)
        reached(f"after {file}")

    def _read(self, file: str) -> bytes:
        try:
            return (self.folder / file).read_bytes()
        except OSError as error:
            raise ConfigError(f"{self.folder / file}: {error.strerror}; put a copy of another member's there") from None

    def _toml(self, file: str, content: bytes) -> dict[str, Any]:
        try:
            return tomllib.loads(content.decode("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.folder / file}: not a TOML file: {error}") from None


def write_private(path: Path, content: bytes) -> None:
    """A file that nobody else may read, never seen half written."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with contextlib.suppress(FileNotFoundError):
        part.unlink()
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
    sync_folder(path.parent)
