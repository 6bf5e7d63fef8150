"""The one line that lets a node in: whole or refused."""

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.errors import ConfigError
from p2p_tally.ids import NodeName
from p2p_tally.trust.identity import make_identity
from p2p_tally.trust.invitation import PREFIX, Invitation, _check, new_secret, read_invitation


@pytest.fixture(scope="module")
def invitation(tmp_path_factory: pytest.TempPathFactory) -> Invitation:
    alice = make_identity(Path(tmp_path_factory.mktemp("alice")))
    return Invitation(
        "ab" * 16, NodeName("carol"), NodeName("alice"), "10.0.0.1:7001", alice.credential, new_secret(), 2_000_000_000
    )


def test_a_line_gives_the_invitation_back(invitation: Invitation) -> None:
    line = invitation.line()
    assert read_invitation(line) == invitation
    assert read_invitation(f"  {line[:70]}\n{line[70:]}\n") == invitation
    assert "\n" not in line and len(line) < 450


@given(st.data())
def test_a_line_cut_short_or_altered_is_refused(invitation: Invitation, data: st.DataObject) -> None:
    line = invitation.line()
    place = data.draw(st.integers(0, len(line) - 1))
    other = data.draw(st.sampled_from("AZaz09-_x"))
    for changed in (line[:place], line[:place] + other + line[place + 1 :]):
        if changed != line:
            with pytest.raises(ConfigError, match="invitation"):
                read_invitation(changed)


def test_a_proof_is_of_the_secret_and_of_the_claim(invitation: Invitation) -> None:
    assert invitation.prove(b"carol") == read_invitation(invitation.line()).prove(b"carol")
    assert invitation.prove(b"carol") != invitation.prove(b"mallory")
    assert invitation.secret.hex() not in invitation.number


@pytest.mark.parametrize("body", [b"[" * 2000, b'["f","carol","alice","a:1","",' + b'"",Infinity]', b"7", b"[1,2]"])
def test_a_line_whose_checksum_fits_and_that_says_nothing_is_refused(body: bytes, invitation: Invitation) -> None:
    """Anybody can compute the checksum."""
    body = body.replace(b'"a:1",""', f'"a:1","{invitation.credential.text}"'.encode())
    line = PREFIX + base64.urlsafe_b64encode(body + _check(body)).decode().rstrip("=")
    with pytest.raises(ConfigError, match="an invitation of another version"):
        read_invitation(line)
