"""How two members whose lists differ find together when no link can be made between them: POST /list.

One of them may have another key since the other last heard of it, or be new. Changes are signed, so it does not matter
who brings them. Who asks for them must be a member; it signs the question, and in it the key of whom it asks.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from p2p_tally.errors import PeerError, TrustError
from p2p_tally.ids import NodeName
from p2p_tally.node.links.addresses import Address
from p2p_tally.node.links.security import key_shown
from p2p_tally.node.membership.home import Home
from p2p_tally.node.membership.points import reached
from p2p_tally.node.membership.roll import Roll
from p2p_tally.trust.certificates import asking
from p2p_tally.trust.changes import canonical, sign
from p2p_tally.trust.identity import NEXT_FILE, load_identity
from p2p_tally.trust.keys import check_signature, read_base64

PATH = "/list"
QUESTION_BYTES = 32 * 1024
PART_BYTES = 24 * 1024
SECONDS = 5.0
# Questions in a row to one member: its list comes in parts.
MOST_QUESTIONS = 4096


@dataclass(frozen=True)
class Question:
    """A member says where its list ends, and asks for the changes from number `want` on. It may bring some, too."""

    federation: str
    name: str
    number: int
    digest: str
    asked: str  # the key of who is asked, in hex
    want: int
    first: int  # the number of the first of the changes that it brings
    changes: tuple[str, ...]
    signatures: tuple[str, ...] = ()  # by the key of who asks; while that is being replaced, by both

    @property
    def signed_part(self) -> bytes:
        return b"p2p-tally list\n" + canonical({**vars(self), "signatures": ()})

    @classmethod
    def read(cls, body: bytes) -> "Question":
        """A question from what a stranger sent; a TrustError if it is none."""
        try:
            values = json.loads(body)
            question = cls(**{**values, "changes": tuple(values["changes"]), "signatures": tuple(values["signatures"])})
            texts = (question.federation, question.name, question.digest, question.asked)
            right = all(isinstance(text, str) for text in (*texts, *question.changes, *question.signatures))
            right = right and all(type(n) is int and n >= 0 for n in (question.number, question.want, question.first))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise TrustError("no question of this version", reason="no-question") from None
        if not right or len(question.signatures) > 2:
            raise TrustError("no question of this version", reason="no-question")
        return question


@dataclass(frozen=True)
class Reply:
    """Where the list of the member that was asked ends, and the changes that were wanted."""

    number: int
    digest: str
    changes: tuple[str, ...]

    @classmethod
    def read(cls, body: bytes) -> "Reply":
        """An answer from whoever is at that address; a TrustError if it is none."""
        try:
            values = json.loads(body)
            number, digest, changes = values["number"], values["digest"], tuple(values["changes"])
        except (ValueError, TypeError, KeyError, RecursionError):
            raise TrustError("no answer of this version", reason="no-answer") from None
        texts = (digest, *changes)
        if type(number) is not int or number < 0 or not all(isinstance(text, str) for text in texts):
            raise TrustError("no answer of this version", reason="no-answer")
        return cls(number, digest, changes)


class CatchingUp:
    """Both sides of it, for one node."""

    def __init__(self, home: Home, roll: Roll, refused: Callable[[PeerError], None]) -> None:
        """`refused`: counts and logs a refusal."""
        self._home = home
        self._roll = roll
        self._refused = refused

    # --- the side that is asked

    async def answer(self, body: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        try:
            question = Question.read(body)
            if question.federation != self._roll.members.federation:
                raise TrustError("the list of another federation", reason="federation")
            if question.changes:
                self._roll.receive(question.first, question.changes)
            last = self._last_for(question)
        except TrustError as error:
            self._refused(TrustError(f"a question for the list: {error}", reason=error.reason))
            return 403, json.dumps({"refused": str(error)}).encode()
        lines = self._roll.lines(question.want, PART_BYTES, last).decode().splitlines() if question.want else []
        digest = self._roll.chain.changes[last - 1].digest
        reached("sending catch-up")
        return 200, json.dumps({"number": last, "digest": digest, "changes": lines}).encode()

    def _last_for(self, question: Question) -> int:
        """The last change that the asker may know: that by which it left, if it is no member any more. A TrustError
        unless a member asks, or a former one, and this node is whom it asked."""
        if question.asked != self._roll.identity.credential.key.hex():
            raise TrustError("it was meant for another node", reason="not-asked")
        member = self._roll.members.current.get(NodeName(question.name))
        key = self._roll.former_key(NodeName(question.name)) if member is None else member.credential.key
        if key is None:
            raise TrustError(f"{question.name:.80} is no member", reason="stranger")
        for signature in question.signatures:
            try:
                given = read_base64(signature, "a signature")
                check_signature(key, question.signed_part, given, "a question")
            except TrustError:
                continue
            members = self._roll.members
            return members.number if member is not None else members.left[NodeName(question.name)]
        raise TrustError(f"{question.name:.80} has not signed it", reason="signature")

    # --- the side that asks

    async def ask(self, peer: NodeName, address: Address) -> None:
        """Find together with the list of this member. Quiet where it cannot be reached; its mistakes are counted."""
        try:
            await self._compare(address)
        except TrustError as error:
            self._refused(TrustError(f"the list of {peer}: {error}", reason=error.reason))
        except (OSError, TimeoutError, EOFError, UnicodeError):
            return  # nobody there; or, a UnicodeError, a host whose name cannot be one

    async def _compare(self, address: Address) -> None:
        want, bring, from_start = self._roll.members.number + 1, 0, False
        for _ in range(MOST_QUESTIONS):
            brought = self._roll.lines(bring, PART_BYTES).decode().splitlines() if bring else []
            reply = await self._question(address, want, bring, brought)
            if reply is None:
                return  # it refuses, and says so itself
            number, digest, changes = reply.number, reply.digest, reply.changes
            parts = False
            if changes:
                try:
                    self._roll.receive(want, changes)
                except TrustError as error:
                    if error.reason != "order" or want == 1:
                        raise
                    parts = True
            members = self._roll.members
            if members.digest == digest:
                return
            if self._roll.has(number, digest):  # the other lacks what comes after
                want, bring = 0, number + 1
            elif brought and bring + len(brought) <= members.number:
                want, bring = 0, bring + len(brought)
            elif changes and not parts:
                want, bring = want + len(changes), 0
            elif not from_start:  # the two part somewhere
                want, bring, from_start = 1, 0, True
            elif not brought:  # what they part by counts for more here
                want, bring = 0, 1
            else:
                return

    async def _question(self, address: Address, want: int, first: int, brought: list[str]) -> Reply | None:
        """The answer; None if the question was refused."""
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=asking())
            try:
                shown = key_shown(writer) or b""
                body = canonical(vars(self._signed(shown, want, first, brought)))
                head = f"POST {PATH} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {len(body)}\r\n\r\n"
                reached("sending catch-up")
                writer.write(head.encode() + body)
                answer = await reader.read(0)
                while chunk := await reader.read(1 << 16):
                    answer += chunk
                    if len(answer) > 4 * PART_BYTES:
                        raise TrustError("an answer that is too long", reason="no-answer")
            finally:
                writer.transport.abort()
        status, _, rest = answer.partition(b"\r\n")
        return Reply.read(rest.partition(b"\r\n\r\n")[2]) if b" 200 " in status else None

    def _signed(self, shown: bytes, want: int, first: int, brought: list[str]) -> Question:
        members, following = self._roll.members, load_identity(self._home.folder, NEXT_FILE)
        question = Question(
            members.federation,
            self._roll.name,
            members.number,
            members.digest,
            shown.hex(),
            want,
            first,
            tuple(brought),
        )
        keys = [self._roll.identity, *([following] if following is not None else [])]
        return replace(question, signatures=tuple(sign(key, question.signed_part) for key in keys))
