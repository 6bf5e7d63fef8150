"""What the members' list says: who is a member, by which key, and in which rounds. And the rules for the next change.

Keys count at once: who is removed opens nothing from the moment that the change is known. Rounds count as the changes
say: all nodes with the same list have the same members in each round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from p2p_tally.errors import TrustError
from p2p_tally.ids import NodeName, in_order
from p2p_tally.trust.certificates import check_credential
from p2p_tally.trust.changes import Change, Kind, Request, consent_part
from p2p_tally.trust.keys import Credential, check_signature, read_base64

# More members than this need another way to pass the list on.
MOST_MEMBERS = 4096

_NOBODY = NodeName("")


@dataclass(frozen=True)
class Member:
    """A member as the list has it now."""

    name: NodeName
    credential: Credential
    address: str  # HOST:PORT; "" if nobody can dial it
    since: int  # the first round that it plays
    may_invite: bool = False
    changed: int = 0  # the number of the last change about it


@dataclass(frozen=True)
class Span:
    """The rounds in which a name is a member."""

    name: NodeName
    first: int
    end: int | None = None  # the first round in which it is no member any more


@dataclass(frozen=True)
class Members:
    """The members after some number of changes. Immutable: `after` gives the next."""

    federation: str = ""
    number: int = 0  # of the last change
    digest: str = ""  # of the last change
    round: int = 1  # from which the last change holds
    founder: NodeName = _NOBODY
    orderer: NodeName = _NOBODY
    successor: NodeName | None = None
    options: str = ""  # digest of the agreed options
    probes: str = ""  # digest of the probes
    current: Mapping[NodeName, Member] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()
    left: Mapping[NodeName, int] = field(default_factory=dict)  # who was a member, and the change that ended it

    # --- who is there

    def at(self, round: int) -> list[NodeName]:
        """The members of a round, in order of name."""
        return in_order(s.name for s in self.spans if s.first <= round and (s.end is None or round < s.end))

    def epochs(self) -> list[tuple[int, list[NodeName]]]:
        """Every round from which the members are others than before, with the members from then on."""
        rounds = sorted({s.first for s in self.spans} | {s.end for s in self.spans if s.end is not None})
        epochs: list[tuple[int, list[NodeName]]] = []
        for first in rounds:
            names = self.at(first)
            if not epochs or epochs[-1][1] != names:
                epochs.append((first, names))
        return epochs

    def owner(self, key: bytes | None) -> NodeName | None:
        """The member that has this key now."""
        return next((name for name, member in self.current.items() if member.credential.key == key), None)

    def may_invite(self, name: NodeName) -> bool:
        member = self.current.get(name)
        return member is not None and (member.may_invite or name in (self.founder, self.orderer))

    # --- the next change

    def after(self, change: Change) -> "Members":
        """The members after this change. A TrustError if the change breaks a rule."""
        request = change.request
        if change.number != self.number + 1 or change.previous != self.digest:
            raise TrustError(f"change {change.number} does not follow change {self.number}", reason="order")
        if change.round < self.round:
            raise TrustError(f"change {change.number} holds from a round before that of the last", reason="order")
        if request.kind is Kind.FOUND:
            return self._founded(change)
        if not self.number:
            raise TrustError("a list that does not begin with a found", reason="order")
        if request.federation != self.federation:
            raise TrustError("a change of another federation", reason="federation")
        self.check_request(request)
        orderer = request.by if request.kind is Kind.TAKE_OVER else self.orderer
        if change.orderer != orderer:
            raise TrustError(f"changes are ordered by {orderer}, not by {change.orderer}", reason="orderer")
        self._check_signature(orderer, change.signed_part, change.signature, f"change {change.number}")
        return self._apply(change)

    def _founded(self, change: Change) -> "Members":
        request, details = change.request, change.request.details
        if self.number or request.name != request.by or change.orderer != request.by or request.federation:
            raise TrustError("a found that is not the first change", reason="order")
        credential = Credential.read(details.credential)
        check_credential(credential)
        for part, signature in ((request.signed_part, request.signature), (change.signed_part, change.signature)):
            check_signature(credential.key, part, read_base64(signature, "a signature"), "the first change")
        founder = Member(request.name, credential, details.address, change.round, may_invite=True, changed=1)
        return Members(
            federation=change.digest[:32],
            number=1,
            digest=change.digest,
            round=change.round,
            founder=request.name,
            orderer=request.name,
            options=details.options,
            probes=details.probes,
            current={request.name: founder},
            spans=(Span(request.name, change.round),),
        )

    def check_request(self, request: Request) -> None:
        """Raise a TrustError unless this member may ask for this."""
        kind, name, by = request.kind, request.name, request.by
        if by not in self.current:
            raise TrustError(f"{by} is no member", reason="stranger")
        self._check_signature(by, request.signed_part, request.signature, f"a request of {by}")
        if kind is Kind.JOIN:
            self._check_newcomer(request)
            return
        if name not in self.current:
            raise TrustError(f"{name} is no member", reason="stranger")
        if request.after > self.number or request.after < self.current[name].changed:
            raise TrustError(f"a request of {by} from before the last change of {name}", reason="old")
        own = name == by
        if kind in (Kind.LEAVE, Kind.ADDRESS, Kind.ROTATE, Kind.TAKE_OVER) and not own:
            raise TrustError(f"{by} asks for a {kind} of {name}; accepted is {name} alone", reason="role")
        if kind in (Kind.REMOVE, Kind.ALLOW, Kind.SUCCESSOR) and by != self.orderer:
            raise TrustError(f"{by} asks for a {kind}; accepted is {self.orderer}, who orders changes", reason="role")
        if kind in (Kind.LEAVE, Kind.REMOVE) and name == self.orderer:
            raise TrustError(f"{name} orders the changes; a successor takes over before it goes", reason="role")
        if kind is Kind.SUCCESSOR and name == self.orderer:
            raise TrustError(f"{name} orders the changes already; a successor is another member", reason="role")
        if kind is Kind.TAKE_OVER and name != self.successor:
            raise TrustError(f"{name} is not the successor; that is {self.successor or 'nobody'}", reason="role")
        if kind is Kind.ROTATE:
            self._check_new_key(request)

    def _check_newcomer(self, request: Request) -> None:
        name, details = request.name, request.details
        if not self.may_invite(request.by):
            raise TrustError(f"{request.by} may not invite", reason="role")
        if name in self.current:
            raise TrustError(f"{name} is a member already", reason="name")
        if request.after > self.number or request.after < self.left.get(name, 0):
            raise TrustError(f"a request of {request.by} from before {name} left", reason="old")
        if len(self.current) >= MOST_MEMBERS:
            raise TrustError(f"the list is full: {MOST_MEMBERS} members", reason="full")
        self._check_new_key(request)
        key = Credential.read(details.credential).key
        part = consent_part(self.federation, name, details.credential, details.address)
        check_signature(key, part, read_base64(details.consent, "a consent"), f"the consent of {name}")

    def _check_new_key(self, request: Request) -> None:
        credential = Credential.read(request.details.credential)
        check_credential(credential)
        if self.owner(credential.key) is not None:
            raise TrustError(f"the key of {request.name} is that of a member already", reason="key")

    def _check_signature(self, name: NodeName, part: bytes, signature: str, what: str) -> None:
        if name not in self.current:
            raise TrustError(f"{name} is no member", reason="stranger")
        check_signature(self.current[name].credential.key, part, read_base64(signature, "a signature"), what)

    def _apply(self, change: Change) -> "Members":
        request, name = change.request, change.request.name
        details, current, spans = request.details, dict(self.current), self.spans
        orderer, successor, left = self.orderer, self.successor, self.left
        match request.kind:
            case Kind.JOIN:
                credential = Credential.read(details.credential)
                current[name] = Member(name, credential, details.address, change.round)
                spans += (Span(name, change.round),)
            case Kind.LEAVE | Kind.REMOVE:
                del current[name]
                spans = tuple(
                    replace(s, end=max(s.first, change.round)) if s.name == name and s.end is None else s for s in spans
                )
                successor = None if successor == name else successor
                left = {**left, name: change.number}
            case Kind.ADDRESS:
                current[name] = replace(current[name], address=details.address)
            case Kind.ROTATE:
                current[name] = replace(current[name], credential=Credential.read(details.credential))
            case Kind.ALLOW:
                current[name] = replace(current[name], may_invite=True)
            case Kind.SUCCESSOR:
                successor = name
            case Kind.TAKE_OVER:
                orderer, successor = name, None
        if name in current:
            current[name] = replace(current[name], changed=change.number)
        return replace(
            self,
            number=change.number,
            digest=change.digest,
            round=change.round,
            orderer=orderer,
            successor=successor,
            current=current,
            spans=spans,
            left=left,
        )
