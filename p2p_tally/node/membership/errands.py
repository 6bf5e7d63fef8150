"""Carries out what commands ask for: each request becomes a request for the list, until the list has it or cannot."""

import logging

from p2p_tally.errors import ConfigError, TrustError
from p2p_tally.ids import NodeName
from p2p_tally.node.membership.home import Home
from p2p_tally.node.membership.passing import Passing
from p2p_tally.node.membership.requests import Asked, Outcome, Requests
from p2p_tally.node.membership.roll import Roll
from p2p_tally.trust.changes import Details, Kind

log = logging.getLogger(__name__)


class Errands:
    """The requests in one home."""

    def __init__(self, home: Home, roll: Roll, passing: Passing) -> None:
        self._home = home
        self._roll = roll
        self._passing = passing
        self._requests = Requests(home.requests)
        self._asked_at: dict[str, int] = {}  # by request: how many changes the list had when it was passed on
        self._next_keys: dict[str, bytes] = {}  # by request for a rotation

    def look(self) -> None:
        """Look for new requests, and for what has become of the others."""
        try:
            waiting = self._requests.waiting()
        except ConfigError as error:
            log.error("%s", error, extra={"event": "request-failed"})
            return
        for asked in waiting:
            try:
                self._carry_out(asked)
            except TrustError as error:
                self._requests.settle(asked.number, Outcome(False, str(error)))

    def _carry_out(self, asked: Asked) -> None:
        number = self._roll.members.number
        if self._is_done(asked):  # perhaps before a crash, which left no time to say so
            self._settle(asked)
        elif self._asked_at.get(asked.number) != number:
            request = self._roll.request(asked.kind, asked.name, self._details(asked))
            self._asked_at[asked.number] = number
            self._passing.submit(request)
            if self._is_done(asked):
                self._settle(asked)

    def _settle(self, asked: Asked) -> None:
        round = self._roll.members.round
        text = f"change {self._roll.members.number}: {asked.kind} of {asked.name}, from round {round} on"
        self._requests.settle(asked.number, Outcome(True, text))

    def _details(self, asked: Asked) -> Details:
        if asked.kind is Kind.ROTATE:
            credential = self._home.next_identity().credential
            self._next_keys[asked.number] = credential.key
            return Details(credential=credential.text)
        return Details(address=asked.address)

    def _is_done(self, asked: Asked) -> bool:
        members, name = self._roll.members, NodeName(asked.name)
        member = members.current.get(name)
        match asked.kind:
            case Kind.LEAVE | Kind.REMOVE:
                return member is None
            case Kind.ROTATE:
                return member is not None and member.credential.key == self._next_keys.get(asked.number)
            case Kind.ALLOW:
                return member is not None and member.may_invite
            case Kind.SUCCESSOR:
                return members.successor == name
            case Kind.TAKE_OVER:
                return members.orderer == name
        return member is not None and member.address == asked.address
