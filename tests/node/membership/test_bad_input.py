"""What operators and strangers get wrong: one clear line, or a refusal by reason."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from homes import found, invitation, join, running, small_federation

from p2p_tally.errors import ConfigError, OperatorError, TrustError
from p2p_tally.ids import NodeName
from p2p_tally.node.membership import joining, shared
from p2p_tally.node.membership.home import Home
from p2p_tally.node.membership.invitations import Claim, Invitations
from p2p_tally.node.membership.shared import check_imports
from p2p_tally.trust.chain import Chain, consent
from p2p_tally.trust.changes import Details, Kind
from p2p_tally.trust.identity import make_identity
from p2p_tally.trust.invitation import Invitation, read_invitation


@pytest.fixture(scope="module")
def alice(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return found(tmp_path_factory.mktemp("homes") / "alice")


def test_a_truncated_invitation(alice: Home) -> None:
    line = invitation(alice, "bob").line()
    with pytest.raises(ConfigError, match="cut short or altered"):
        read_invitation(line[:-5])


def test_a_wrong_home(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no federation there; make one with p2p-tally found, or join one"):
        Home(tmp_path / "nowhere").chain()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="a file; accepted is a folder"):
        Home(tmp_path / "file")


def test_a_home_that_has_a_federation(alice: Home) -> None:
    with pytest.raises(ConfigError, match="has a federation already"):
        found(alice.folder)


def test_overlap_where_members_may_join(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--overlap: accepted where members do not change"):
        found(tmp_path / "home", overlap=True)


def test_a_key_that_others_can_read(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.identity().file.chmod(0o644)
    with pytest.raises(ConfigError, match="others can read this key"):
        home.identity()


@pytest.mark.parametrize("file", ["federation.toml", "probes.npz"])
def test_a_shared_file_altered_by_hand(file: str, alice: Home) -> None:
    path = alice.folder / file
    before = path.read_bytes()
    try:
        path.write_bytes(before + b"\n")
        with pytest.raises(ConfigError, match=f"{file}: not the file that the federation was founded with"):
            alice.shared_options(alice.chain().members)
    finally:
        path.write_bytes(before)


def test_a_list_altered_by_hand(alice: Home) -> None:
    path = alice.folder / "members.jsonl"
    before = path.read_text()
    try:
        path.write_text(before.replace('"round": 1', '"round": 2'))
        with pytest.raises(ConfigError, match="the file was altered"):
            alice.chain()
    finally:
        path.write_text(before)


def test_probes_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "PROBES_BYTES", 1000)
    with pytest.raises(ConfigError, match="accepted are at most 1000, because everybody who joins gets them"):
        found(tmp_path / "alice")


def test_probes_that_are_too_large_for_who_joins(alice: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(joining, "_MOST", (1 << 20, 1 << 16, 10))
    bob, invited = make_identity(tmp_path), invitation(alice, "bob")
    parts = [alice.chain().text().encode(), alice.options_text(), alice.probes()]
    body = json.dumps({"parts": [len(part) for part in parts]}).encode() + b"\n" + b"".join(parts)
    with pytest.raises(ConfigError, match=r"the probes of this federation: [0-9]+ bytes; accepted are at most 10"):
        joining.read_welcome(body, invited, bob)


@pytest.mark.parametrize(
    "head", [b'{"parts": ["1", 2, 3]}', b'{"parts": [null, 1, 2]}', b'{"parts": [1.5, 1, 2]}', b"[" * 4000, b"7"]
)
def test_an_answer_to_a_newcomer_that_is_none(head: bytes, alice: Home, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"an answer cut short|no answer that this version understands"):
        joining.read_welcome(head + b"\nabcd", invitation(alice, "bob"), make_identity(tmp_path))


def test_an_address_that_stands_for_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name the one that others dial with --address"):
        found(tmp_path / "alice", listen="0.0.0.0:7001")


def test_a_model_that_is_not_installed(alice: Home) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.models:net"):
        check_imports(small_federation(model="nowhere.models:net"))
    with pytest.raises(ConfigError, match=r"nowhere\.methods:ROW"):
        check_imports(small_federation(method="nowhere.methods:ROW"))


def test_a_clock_that_is_wrong_by_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    joining._compare_clocks(time.time() - 24 * 3600, said.append)
    joining._compare_clocks(time.time() + 24 * 3600, said.append)
    joining._compare_clocks(time.time() + 60, said.append)
    joining._compare_clocks(10**400, said.append)  # no time at all
    assert said == [
        "this machine's clock is 24 h ahead of the inviter's",
        "this machine's clock is 24 h behind the inviter's",
    ]


# --- newcomers that are refused


def claim_of(invited: Invitation, folder: Path, name: str | None = None) -> Claim:
    key, name = make_identity(folder), name or invited.name
    agreed = consent(key, invited.federation, NodeName(name), "")
    return Claim(invited.federation, invited.number, name, key.credential.text, "", agreed).proved(invited)


def altered(invited: Invitation, **values: Any) -> Invitation:
    return replace(invited, **values)


WRONG: dict[str, Callable[[Invitation, Path], Claim]] = {
    "unknown-invitation": lambda invited, folder: claim_of(altered(invited, secret=bytes(16)), folder),
    "altered-invitation": lambda invited, folder: claim_of(invited, folder, name="mallory"),
    "federation": lambda invited, folder: claim_of(altered(invited, federation="0" * 32), folder),
    "signature": lambda invited, folder: replace(claim_of(invited, folder), address="10.0.0.9:7001").proved(invited),
}


@pytest.mark.parametrize("reason", WRONG)
def test_a_claim_that_is_refused(reason: str, alice: Home, tmp_path: Path) -> None:
    invited = invitation(alice, "bob")
    with pytest.raises(TrustError) as refused:
        Invitations(alice.invitations).check(WRONG[reason](invited, tmp_path), alice.chain().members, time.time())
    assert refused.value.reason == reason


def test_an_invitation_that_has_expired(alice: Home, tmp_path: Path) -> None:
    """The inviter's clock decides."""
    claim = claim_of(invitation(alice, "bob", days=1), tmp_path)
    with pytest.raises(TrustError, match="has expired") as refused:
        Invitations(alice.invitations).check(claim, alice.chain().members, time.time() + 2 * 24 * 3600)
    assert refused.value.reason == "expired-invitation"


def test_a_used_invitation_serves_the_key_that_used_it(alice: Home, tmp_path: Path) -> None:
    invited, invitations, members = invitation(alice, "bob"), Invitations(alice.invitations), alice.chain().members
    first = claim_of(invited, tmp_path / "bob")
    assert invitations.check(first, members, time.time()) == "bob"
    assert invitations.check(first, members, time.time() + 30 * 24 * 3600) == "bob"  # it was cut off, and asks again
    with pytest.raises(TrustError) as refused:
        invitations.check(claim_of(invited, tmp_path / "mallory"), members, time.time())
    assert refused.value.reason == "used-invitation"


def test_a_name_that_is_taken(alice: Home, tmp_path: Path) -> None:
    claim = claim_of(invitation(alice, "alice"), tmp_path)
    with pytest.raises(TrustError) as refused:
        Invitations(alice.invitations).check(claim, alice.chain().members, time.time())
    assert refused.value.reason == "name-taken"


def test_secrets_are_not_for_others(alice: Home) -> None:
    invitation(alice, "bob")
    for path in alice.invitations.iterdir():
        assert path.stat().st_mode & 0o077 == 0


async def test_refusals_are_counted_and_said(tmp_path: Path) -> None:
    """A daemon counts who is refused by reason, and the newcomer reads one line."""
    alice = found(tmp_path / "alice")
    async with running() as nodes:
        daemon = await nodes.start(alice)
        invited = invitation(alice, "bob")
        with pytest.raises(ConfigError, match="alice refuses: an invitation that was not made here"):
            await join(tmp_path / "mallory", altered(invited, secret=bytes(16)))
        await join(tmp_path / "bob", invited)
        with pytest.raises(ConfigError, match="alice refuses: an invitation that another key has used"):
            await join(tmp_path / "mallory", invited)
        assert daemon.transport.refusals["unknown-invitation"] == 1
        assert daemon.transport.refusals["used-invitation"] == 1


async def test_an_inviter_with_another_key(tmp_path: Path) -> None:
    alice = found(tmp_path / "alice")
    async with running() as nodes:
        await nodes.start(alice)
        other = make_identity(tmp_path / "other").credential
        with pytest.raises(ConfigError, match="shows another key than the invitation names"):
            await join(tmp_path / "bob", altered(invitation(alice, "bob"), credential=other))


def test_an_old_request_brings_nobody_back(alice: Home, tmp_path: Path) -> None:
    """What let somebody in once is in the list for all to read; after the removal it is worth nothing."""
    founder, bob, name = alice.identity(), make_identity(tmp_path), NodeName("bob")
    chain: Chain = alice.chain()
    agreed = consent(bob, chain.members.federation, name, "")
    details = Details(credential=bob.credential.text, consent=agreed)
    request = chain.request(founder, NodeName("alice"), Kind.JOIN, name, details)
    chain = chain.ordered(founder, request, 1)
    chain = chain.ordered(founder, chain.request(founder, NodeName("alice"), Kind.REMOVE, name, Details()), 2)
    with pytest.raises(TrustError) as refused:
        chain.ordered(founder, request, 3)
    assert refused.value.reason == "old"


@pytest.mark.parametrize("data", ["npz:nope.npz", "text:nope.txt"])
async def test_a_missing_file_is_said_before_anybody_lets_the_newcomer_in(
    data: str, alice: Home, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"^--data {data}: no such file"):
        await join(tmp_path / "bob", invitation(alice, "bob"), data=data)
    assert not (tmp_path / "bob").exists()
