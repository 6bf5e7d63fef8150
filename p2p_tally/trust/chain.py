"""The members' list: a chain of changes, each of which names the one before it by its digest.

So everyone can check who let whom in, and nobody can alter the past. Of two lists that part, the one with the take-over
of the successor at that place counts: the successor is named by the founder for the case that the founder is lost.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from p2p_tally.errors import ConfigError, TrustError
from p2p_tally.files import write_whole
from p2p_tally.ids import NodeName
from p2p_tally.trust.changes import Change, Details, Kind, Request, consent_part, sign
from p2p_tally.trust.identity import Identity
from p2p_tally.trust.keys import Credential
from p2p_tally.trust.members import Members

FILE = "members.jsonl"
# A longer list is refused: it would have to be checked line by line for whoever sends it.
MOST_CHANGES = 20_000


class TwoLists(TrustError):
    """Two lists that part, and neither has a take-over there: who orders changes has signed two with one number."""

    reason = "two-lists"


@dataclass(frozen=True)
class Chain:
    """A list whose every change is checked. Immutable: a longer list is a new one."""

    changes: tuple[Change, ...]
    members: Members = field(default_factory=Members)

    # --- making one

    @classmethod
    def found(cls, identity: Identity, name: NodeName, address: str, options: str, probes: str) -> "Chain":
        """A federation with one member. `options`, `probes`: digests of what all members share."""
        details = Details(
            credential=identity.credential.text,
            address=address,
            options=options,
            probes=probes,
            nonce=secrets.token_hex(16),
        )
        request = Request("", Kind.FOUND, name, name, 0, details).signed(identity)
        return cls(()).extended([Change(1, "", 1, name, request).signed(identity)])

    def request(self, identity: Identity, by: NodeName, kind: Kind, name: NodeName, details: Details) -> Request:
        """What a member asks who orders changes for."""
        return Request(self.members.federation, kind, name, by, self.members.number, details).signed(identity)

    def ordered(self, identity: Identity, request: Request, round: int) -> "Chain":
        """The list with this request as its next change, which holds from `round` on. By who orders changes."""
        orderer = request.by if request.kind is Kind.TAKE_OVER else self.members.orderer
        change = Change(self.members.number + 1, self.members.digest, max(round, self.members.round), orderer, request)
        return self.extended([change.signed(identity)])

    def extended(self, changes: Iterable[Change]) -> "Chain":
        """The list with these changes after its own. A TrustError if one breaks a rule."""
        added, members = list(self.changes), self.members
        for change in changes:
            if len(added) >= MOST_CHANGES:
                raise TrustError(f"a list of more than {MOST_CHANGES} changes", reason="full")
            members = members.after(change)
            added.append(change)
        return Chain(tuple(added), members)

    # --- two lists

    def reconciled(self, first: int, theirs: Iterable[Change]) -> "Chain":
        """This list and that of another member, as one. `theirs`: its changes from number `first` on.

        A TrustError if theirs breaks a rule; TwoLists if both keep the rules and neither counts for more.
        """
        changes = list(theirs)
        if not 1 <= first <= len(self.changes) + 1:
            raise TrustError(f"changes from number {first}; accepted is 1 to {len(self.changes) + 1}", reason="order")
        same = 0
        for own, other in zip(self.changes[first - 1 :], changes, strict=False):
            if own.digest != other.digest:
                break
            same += 1
        rest = changes[same:]
        place = first - 1 + same
        if not rest:
            return self  # this list is as long, or longer
        if place == len(self.changes):
            return self.extended(rest)
        if self.changes[place].request.kind is Kind.TAKE_OVER:
            return self
        other_list = Chain(()).extended([*self.changes[:place], *rest])
        if rest[0].request.kind is Kind.TAKE_OVER:
            return other_list
        raise TwoLists(f"two changes with number {place + 1}, both signed by {rest[0].orderer}")

    # --- as a file

    def text(self) -> str:
        return "".join(change.line() + "\n" for change in self.changes)

    def save(self, home: Path) -> None:
        """Write the list so that a crash leaves the old one or the new one."""
        write_whole(home / FILE, self.text(), sync=True)


def load_chain(home: Path) -> Chain:
    """The list in this home. A ConfigError if there is none, or it was altered."""
    path = home / FILE
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise ConfigError(f"--home {home}: no federation there; make one with p2p-tally found, or join one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
    try:
        return Chain(()).extended(Change.read(line) for line in lines)
    except TrustError as error:
        raise ConfigError(
            f"{path}: {error}; the file was altered: put a copy of another member's in its place"
        ) from None


def keys_of(chain: Chain, name: str) -> list[bytes]:
    """All keys that a member has had, the newest last."""
    about = (change.request for change in chain.changes if change.request.name == name)
    return [Credential.read(request.details.credential).key for request in about if request.details.credential]


def consent(identity: Identity, federation: str, name: NodeName, address: str) -> str:
    """A newcomer's signature that it wants to be this member."""
    return sign(identity, consent_part(federation, name, identity.credential.text, address))
