"""What a newcomer does with an invitation: ask the inviter to be let in, check what it answers, store it.

Run again after a crash it goes on: the inviter knows the key, and answers the same.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from p2p_tally.errors import ConfigError, OperatorError, TrustError
from p2p_tally.node.links.addresses import why_unreachable
from p2p_tally.node.membership.admission import ADMITTED, PATH, REFUSED, WAITS
from p2p_tally.node.membership.home import Home, sha256
from p2p_tally.node.membership.invitations import Claim
from p2p_tally.node.membership.points import reached
from p2p_tally.node.membership.shared import OPTIONS_BYTES, PROBES_BYTES
from p2p_tally.trust import certificates
from p2p_tally.trust.chain import MOST_CHANGES, Chain, consent
from p2p_tally.trust.changes import LINE_BYTES, Change
from p2p_tally.trust.identity import Identity
from p2p_tally.trust.invitation import Invitation

log = logging.getLogger(__name__)

# While who orders changes is away, or the inviter does not answer, a newcomer asks again this often.
AGAIN_SECONDS = 2.0
# How long a newcomer tries to reach the inviter: it may be about to start.
UNREACHABLE_SECONDS = 60.0
ANSWER_SECONDS = 600.0  # for a large file of probes over a slow line
CLOCK_SECONDS = 3600.0
LAST_SECOND = 2**53  # a larger number is no time
_HEAD_BYTES = 4096
_MOST = (MOST_CHANGES * LINE_BYTES, OPTIONS_BYTES, PROBES_BYTES)


@dataclass(frozen=True)
class Welcome:
    """What a newcomer gets, checked."""

    chain: Chain
    options: bytes
    probes: bytes


async def join(home: Home, invitation: Invitation, address: str, say: Callable[[str], None]) -> Welcome:
    """Ask until this node is a member. `say`: tells the person why it takes longer."""
    identity = home.identity()
    claim = Claim(
        invitation.federation,
        invitation.number,
        invitation.name,
        identity.credential.text,
        address,
        consent(identity, invitation.federation, invitation.name, address),
    ).proved(invitation)
    said, until = "", time.monotonic() + UNREACHABLE_SECONDS
    while True:
        reached("sending join")
        try:
            status, body = await _post(invitation, claim.line())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            where = f"{invitation.inviter} at {invitation.address}: {why_unreachable(error)}"
            if time.monotonic() > until:
                raise OperatorError(f"{where}; its node must run and be reachable; then join again") from None
            if not said:
                said = f"waiting for {where}"
                say(said)
            await asyncio.sleep(AGAIN_SECONDS)
            continue
        if status == ADMITTED:
            return read_welcome(body, invitation, identity)
        answer = _answer(body, invitation)
        _compare_clocks(answer.get("time"), say if not said else lambda _: None)
        if status == REFUSED:
            raise ConfigError(f"{invitation.inviter} refuses: {answer.get('refused', 'no reason given')}")
        if status != WAITS:
            raise OperatorError(
                f"{invitation.address}: answers {status} to a newcomer; is it p2p-tally of this version?"
            )
        if not said:
            said = f"waiting for {answer.get('waiting')}, who orders changes and is away"
            say(said)
        await asyncio.sleep(AGAIN_SECONDS)


async def _post(invitation: Invitation, body: bytes) -> tuple[int, bytes]:
    where = f"{invitation.inviter} at {invitation.address}"
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, connect=10)
    context = certificates.dialling(None, invitation.credential)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(f"https://{invitation.address}{PATH}", data=body, ssl=context) as answer,
        ):
            return answer.status, await _read(answer.content)
    except aiohttp.ClientConnectorCertificateError:
        raise ConfigError(f"{where}: shows another key than the invitation names; ask for a new invitation") from None


async def _read(stream: aiohttp.StreamReader) -> bytes:
    """All of the answer, up to what the largest may have."""
    most, found = _HEAD_BYTES + sum(_MOST), bytearray()
    async for chunk in stream.iter_any():
        found += chunk
        if len(found) > most:
            raise OperatorError("the answer to a newcomer is too long")
    return bytes(found)


def _answer(body: bytes, invitation: Invitation) -> dict[str, object]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise OperatorError(f"{invitation.address}: no answer that this version understands")
    return values


def _compare_clocks(theirs: object, say: Callable[[str], None]) -> None:
    if not isinstance(theirs, int | float) or not abs(theirs) < LAST_SECOND:
        return
    if abs(theirs - time.time()) > CLOCK_SECONDS:
        hours = (time.time() - theirs) / 3600
        say(f"this machine's clock is {abs(hours):.0f} h {'ahead of' if hours > 0 else 'behind'} the inviter's")


def read_welcome(body: bytes, invitation: Invitation, identity: Identity) -> Welcome:
    """The answer to a newcomer, checked: the list is of the right federation and has this node; digests fit."""
    head, _, rest = body.partition(b"\n")
    values = _answer(head[:_HEAD_BYTES], invitation)
    _compare_clocks(values.get("time"), lambda text: log.warning("%s", text))
    lengths = values.get("parts")
    if not isinstance(lengths, list) or [type(n) for n in lengths] != [int] * 3 or sum(lengths) != len(rest):
        raise OperatorError(f"{invitation.address}: an answer cut short; join again")
    parts, start = [], 0
    for length, most, what in zip(lengths, _MOST, ("members' list", "options", "probes"), strict=True):
        if not 0 <= length <= most:
            raise ConfigError(f"the {what} of this federation: {length} bytes; accepted are at most {most}")
        parts.append(rest[start : start + length])
        start += length
    try:
        chain = Chain(()).extended(Change.read(line) for line in parts[0].splitlines())
    except TrustError as error:
        raise OperatorError(f"{invitation.inviter} sends a members' list that does not hold: {error}") from None
    members = chain.members
    if members.federation != invitation.federation or members.owner(identity.credential.key) != invitation.name:
        raise OperatorError(f"{invitation.inviter} sends the members' list of another federation, or without this node")
    for what, content, expected in (("options", parts[1], members.options), ("probes", parts[2], members.probes)):
        if sha256(content) != expected:
            raise OperatorError(f"{invitation.inviter} sends other {what} than the members' list names; join again")
    return Welcome(chain, parts[1], parts[2])
