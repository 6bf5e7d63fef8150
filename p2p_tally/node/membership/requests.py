"""What commands ask the daemon of their home for: a file each, and a file with the outcome.

A request stays until it has an outcome, whatever happens to either process. The daemon looks for new ones twice a
second: one look at a folder.
"""

import json
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from p2p_tally.errors import ConfigError
from p2p_tally.files import write_whole
from p2p_tally.ids import NodeName, node_name
from p2p_tally.node.membership.points import reached
from p2p_tally.trust.changes import Kind

LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Asked:
    """What a person asked for."""

    number: str
    kind: Kind
    name: NodeName
    address: str = ""  # of an address change


@dataclass(frozen=True)
class Outcome:
    done: bool
    text: str


class Requests:
    """The folder of requests of one home."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    # --- the command's side

    def ask(self, kind: Kind, name: NodeName, address: str = "") -> str:
        """Leave a request; returns its number. One that waits already for the same is not asked for twice."""
        for waiting in self.waiting():
            if (waiting.kind, waiting.name, waiting.address) == (kind, name, address):
                return waiting.number
        number = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
        values = {"kind": kind.value, "name": name, "address": address}
        reached("before request")
        write_whole(self._folder / f"{number}.json", json.dumps(values), sync=True)
        reached("after request")
        return number

    def outcome(self, number: str, seconds: float) -> Outcome | None:
        """Wait for what became of a request. None: it still waits."""
        path, until = self._folder / f"{number}.done", time.monotonic() + seconds
        while not path.exists():
            if time.monotonic() >= until:
                return None
            time.sleep(0.05)
        values = json.loads(path.read_text(encoding="utf-8"))
        path.unlink(missing_ok=True)
        return Outcome(values["done"], values["text"])

    # --- the daemon's side

    def waiting(self) -> list[Asked]:
        """The requests without an outcome, the oldest first."""
        return [self._read(path) for path in sorted(self._folder.glob("*.json"))]

    def settle(self, number: str, outcome: Outcome) -> None:
        reached("before outcome")
        write_whole(
            self._folder / f"{number}.done", json.dumps({"done": outcome.done, "text": outcome.text}), sync=True
        )
        reached("after outcome")
        (self._folder / f"{number}.json").unlink(missing_ok=True)

    def _read(self, path: Path) -> Asked:
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            return Asked(path.stem, Kind(values["kind"]), node_name(values["name"]), str(values["address"]))
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(f"{path}: no request of this version; remove it") from None
