"""The desk at which a newcomer asks to be let in: POST /join.

A newcomer shows by its invitation's secret that it was invited. The answer is all that it needs to take part: the
members' list with itself in it, the options and the probes. If who orders changes is away, the newcomer is told to ask
again.
"""

import json
import time
from collections.abc import Callable

from p2p_tally.errors import PeerError, TrustError
from p2p_tally.ids import NodeName
from p2p_tally.node.membership.home import Home
from p2p_tally.node.membership.invitations import Claim, Invitations
from p2p_tally.node.membership.passing import Passing
from p2p_tally.node.membership.points import reached
from p2p_tally.node.membership.roll import Roll
from p2p_tally.trust.changes import Details, Kind

PATH = "/join"
CLAIM_BYTES = 4096
# A newcomer is answered within this time, whatever comes of its request: strangers have five seconds.
ANSWER_SECONDS = 2.0
ADMITTED, WAITS, REFUSED = 200, 202, 403


class Admission:
    """Lets newcomers in, for one node."""

    def __init__(self, home: Home, roll: Roll, passing: Passing, refused: Callable[[PeerError], None]) -> None:
        """`refused`: counts and logs a refusal."""
        self._home = home
        self._roll = roll
        self._passing = passing
        self._refused = refused
        self._invitations = Invitations(home.invitations)

    async def answer(self, body: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        try:
            claim = Claim.read(body)
            self._invitations.check(claim, self._roll.members, time.time())
            if not self._is_in(claim):
                self._request(claim)
            if not await self._roll.wait(lambda: self._is_in(claim), ANSWER_SECONDS):
                return WAITS, _said(waiting=self._roll.members.orderer)
        except TrustError as error:
            self._refused(TrustError(f"a newcomer: {error}", reason=error.reason))
            return REFUSED, _said(refused=str(error), reason=error.reason)
        self._invitations.completed(claim)
        reached("sending admitted")
        return ADMITTED, self._welcome()

    def _is_in(self, claim: Claim) -> bool:
        member = self._roll.members.current.get(NodeName(claim.name))
        return member is not None and member.credential.text == claim.credential

    def _request(self, claim: Claim) -> None:
        details = Details(credential=claim.credential, address=claim.address, consent=claim.consent)
        self._passing.submit(self._roll.request(Kind.JOIN, NodeName(claim.name), details))

    def _welcome(self) -> bytes:
        parts = [self._roll.chain.text().encode(), self._home.options_text(), self._home.probes()]
        head = json.dumps({"parts": [len(part) for part in parts], "time": time.time()}).encode()
        return head + b"\n" + b"".join(parts)


def _said(**values: str) -> bytes:
    return json.dumps({**values, "time": time.time()}).encode()
