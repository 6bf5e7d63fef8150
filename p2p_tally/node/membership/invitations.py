"""The invitations that this node has made: a file each, with the secret, which nobody else may read.

Commands write them and the daemon reads them, so both need only the folder. An invitation is marked as used before the
newcomer is answered: it then serves that key alone, which may ask again if it was cut off.
"""

import hmac
import json
import re
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from p2p_tally.errors import TrustError
from p2p_tally.ids import NodeName, node_name
from p2p_tally.node.membership.home import write_private
from p2p_tally.node.membership.points import reached
from p2p_tally.trust.changes import canonical, consent_part
from p2p_tally.trust.invitation import Invitation, new_secret
from p2p_tally.trust.keys import Credential, check_signature, read_base64
from p2p_tally.trust.members import Members

DAY = 24 * 3600
_NUMBER = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True)
class Claim:
    """What a newcomer says of itself; `proof` shows that it has the secret."""

    federation: str
    invitation: str  # its number
    name: str
    credential: str
    address: str
    consent: str
    proof: str = ""

    def proved(self, invitation: Invitation) -> "Claim":
        return replace(self, proof=invitation.prove(self._proved_part).hex())

    @property
    def _proved_part(self) -> bytes:
        return canonical({**asdict(self), "proof": ""})

    def is_proved_by(self, secret: bytes) -> bool:
        return hmac.compare_digest(hmac.digest(secret, self._proved_part, "sha256").hex(), self.proof)

    def line(self) -> bytes:
        return canonical(asdict(self))

    @classmethod
    def read(cls, body: bytes) -> "Claim":
        """A claim from what a stranger sent; a TrustError if it is none."""
        try:
            values = json.loads(body)
            claim = cls(**values)
        except (ValueError, TypeError, RecursionError):
            raise TrustError("no claim of this version", reason="no-claim") from None
        if not all(isinstance(value, str) for value in values.values()):
            raise TrustError("no claim of this version", reason="no-claim")
        return claim


class Invitations:
    """The folder of one node's invitations."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, name: NodeName, inviter: NodeName, members: Members, days: float) -> Invitation:
        """A new invitation for this name. The member who invites must be one that can be dialled."""
        member = members.current[inviter]
        expires = int(time.time() + days * DAY)
        secret = new_secret()
        made = Invitation(members.federation, name, inviter, member.address, member.credential, secret, expires)
        self._write(made.number, {"name": name, "secret": secret.hex(), "expires": expires, "used": ""})
        return made

    def check(self, claim: Claim, members: Members, now: float) -> NodeName:
        """Let this newcomer in, and mark the invitation as used by its key. A TrustError with the reason if not."""
        if claim.federation != members.federation:
            raise TrustError("an invitation to another federation", reason="federation")
        kept = self._read(claim.invitation)
        if kept is None:
            raise TrustError("an invitation that was not made here", reason="unknown-invitation")
        if not claim.is_proved_by(bytes.fromhex(kept["secret"])) or claim.name != kept["name"]:
            raise TrustError("an altered invitation", reason="altered-invitation")
        self._check_key(claim)
        name, member = node_name(claim.name), members.current.get(NodeName(claim.name))
        if kept["used"] == claim.credential:
            if kept.get("done") and member is None:
                raise TrustError(f"{name} was a member, and has left or was removed", reason="used-invitation")
            return name
        if kept["used"]:
            raise TrustError("an invitation that another key has used", reason="used-invitation")
        if now > kept["expires"]:
            raise TrustError("an invitation that has expired", reason="expired-invitation")
        if member is not None:
            raise TrustError(f"{name} is a member already", reason="name-taken")
        self._write(claim.invitation, {**kept, "used": claim.credential})
        return name

    def completed(self, claim: Claim) -> None:
        """The newcomer is in the list: if it is taken out again, its invitation does not bring it back."""
        kept = self._read(claim.invitation)
        if kept is not None and not kept.get("done"):
            self._write(claim.invitation, {**kept, "done": True})

    def _check_key(self, claim: Claim) -> None:
        """The newcomer must have the key that it names: it has signed that it wants to be this member."""
        key = Credential.read(claim.credential).key
        part = consent_part(claim.federation, claim.name, claim.credential, claim.address)
        check_signature(key, part, read_base64(claim.consent, "a consent"), f"the consent of {claim.name:.80}")

    def _path(self, number: str) -> Path:
        return self._folder / f"{number}.json"

    def _read(self, number: str) -> dict[str, Any] | None:
        if not _NUMBER.fullmatch(number):
            return None
        try:
            kept: dict[str, Any] = json.loads(self._path(number).read_bytes())
        except (OSError, ValueError):
            return None
        return kept

    def _write(self, number: str, values: dict[str, Any]) -> None:
        reached("before invitation")
        write_private(self._path(number), json.dumps(values).encode())
        reached("after invitation")
