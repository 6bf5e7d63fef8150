"""Fingerprints that survive the telephone, identities in files, and certificates that TLS accepts."""

import asyncio
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.errors import ConfigError, TrustError
from p2p_tally.trust.certificates import accepting, certificate, check_credential, dialling, key_of
from p2p_tally.trust.identity import NEXT_FILE, Identity, adopt_next, load_identity, make_identity
from p2p_tally.trust.keys import KEY_BYTES, Credential, fingerprint, read_fingerprint

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@given(st.binary(min_size=32, max_size=32))
def test_a_fingerprint_is_read_as_it_was_written(key: bytes) -> None:
    written = fingerprint(key)
    assert read_fingerprint(written) == written
    assert read_fingerprint(" ".join(written.lower().replace("0", "o").replace("1", "l").split("-"))) == written


@given(st.binary(min_size=32, max_size=32), st.integers(0, 23), st.sampled_from(ALPHABET))
def test_any_one_wrong_character_is_noticed(key: bytes, place: int, character: str) -> None:
    plain = fingerprint(key).replace("-", "")
    typed = plain[:place] + character + plain[place + 1 :]
    if typed != plain:
        with pytest.raises(TrustError, match="mistyped"):
            read_fingerprint(typed)


@given(st.binary(min_size=32, max_size=32), st.integers(0, 22))
def test_two_neighbours_that_changed_places_are_noticed(key: bytes, place: int) -> None:
    plain = fingerprint(key).replace("-", "")
    typed = plain[:place] + plain[place + 1] + plain[place] + plain[place + 2 :]
    if typed != plain:
        with pytest.raises(TrustError, match="mistyped"):
            read_fingerprint(typed)


@pytest.mark.parametrize("text", ["", "ABCD", "A" * 23, "A" * 25, "!" * 24])
def test_what_is_no_fingerprint(text: str) -> None:
    with pytest.raises(TrustError, match="six groups of four"):
        read_fingerprint(text)


def test_a_key_is_made_once_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert load_identity(home) is None
    made = make_identity(home)
    assert made.file.stat().st_mode & 0o777 == 0o600
    loaded = load_identity(home)
    assert loaded is not None and loaded.credential == made.credential
    made.file.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_identity(home)


def test_a_damaged_key_is_named(tmp_path: Path) -> None:
    file = make_identity(tmp_path).file
    file.write_text("-----BEGIN PRIVATE KEY-----\nnonsense\n")
    with pytest.raises(ConfigError, match="holds no Ed25519 key"):
        load_identity(tmp_path)


def test_the_next_key_takes_the_place_of_the_first(tmp_path: Path) -> None:
    first, following = make_identity(tmp_path), make_identity(tmp_path, NEXT_FILE)
    adopt_next(tmp_path)
    adopt_next(tmp_path)  # a second time, after a crash: nothing to do
    now = load_identity(tmp_path)
    assert now is not None and now.credential == following.credential != first.credential


def test_a_credential_is_all_of_a_certificate(tmp_path: Path) -> None:
    made = make_identity(tmp_path)
    pem = made.file.read_text()
    in_file = ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERTIFICATE") :])
    assert certificate(Credential.read(made.credential.text)) == in_file
    assert key_of(in_file) == made.credential.key
    check_credential(made.credential)


@pytest.mark.parametrize("at", range(0, 200, 7))
def test_a_certificate_that_is_none_of_ours_has_no_key(at: int, tmp_path: Path) -> None:
    """Whoever is dialled may show anything, also a kind of key or a version that nobody knows."""
    der = bytearray(certificate(make_identity(tmp_path).credential))
    for changed in range(256):
        der[at] = changed
        found = key_of(bytes(der))
        assert found is None or len(found) == KEY_BYTES


def test_a_credential_that_its_owner_did_not_make(tmp_path: Path) -> None:
    one, other = make_identity(tmp_path / "one"), make_identity(tmp_path / "other")
    with pytest.raises(TrustError, match="not by the key"):
        check_credential(Credential(one.credential.key, other.credential.proof))
    with pytest.raises(TrustError, match="96 bytes"):
        Credential.read("AAAA")


async def _shake(server: ssl.SSLContext, client: ssl.SSLContext) -> bytes | None:
    """One connection. Returns the key that the server saw; raises if there is no connection."""
    seen: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        seen.set_result(key_of(writer.get_extra_info("ssl_object").getpeercert(binary_form=True)))
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        writer.write(b"x")
        await reader.read()  # in TLS 1.3 a client learns only now that it was refused
        writer.close()
        if not seen.done():
            raise ConnectionError("refused")
        return seen.result()


@pytest.fixture
def people(tmp_path: Path) -> dict[str, Identity]:
    return {name: make_identity(tmp_path / name) for name in ("alice", "bob", "mallory")}


async def test_members_know_each_other_by_their_keys(people: dict[str, Identity]) -> None:
    alice, bob = people["alice"], people["bob"]
    server = accepting(alice.file, [bob.credential])
    assert await _shake(server, dialling(bob.file, alice.credential)) == bob.credential.key
    assert await _shake(server, dialling(None, alice.credential)) is None


async def test_a_key_that_is_not_trusted_gets_no_connection(people: dict[str, Identity]) -> None:
    alice, bob, mallory = people.values()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await _shake(accepting(alice.file, [bob.credential]), dialling(mallory.file, alice.credential))
    with pytest.raises(ssl.SSLCertVerificationError):
        await _shake(accepting(mallory.file, [bob.credential]), dialling(bob.file, alice.credential))


async def test_older_tls_is_refused(people: dict[str, Identity]) -> None:
    alice, bob, _ = people.values()
    client = dialling(bob.file, alice.credential)
    client.minimum_version = ssl.TLSVersion.TLSv1_2
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await _shake(accepting(alice.file, [bob.credential]), client)
