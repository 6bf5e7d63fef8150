"""Addresses on the command line, right and wrong."""

import contextlib
import errno
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.errors import ConfigError
from p2p_tally.node.links.addresses import Address, PeerAddress, parse_address, parse_peers, why_unreachable
from p2p_tally.trust.keys import fingerprint


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("127.0.0.1:7001", "127.0.0.1", 7001, "127.0.0.1:7001"),
        ("localhost:0", "localhost", 0, "localhost:0"),
        ("node.example:65535", "node.example", 65535, "node.example:65535"),
        (" host:80 ", "host", 80, "host:80"),
        ("host:0080", "host", 80, "host:80"),
        ("[::1]:7001", "::1", 7001, "[::1]:7001"),
        ("[fe80::1%eth0]:7001", "fe80::1%eth0", 7001, "[fe80::1%eth0]:7001"),
        ("[2001:db8::5]:80", "2001:db8::5", 80, "[2001:db8::5]:80"),
        ("::1:7001", "::1", 7001, "[::1]:7001"),  # the last colon is the port's
    ],
)
def test_addresses(text: str, host: str, port: int, shown: str) -> None:
    address = parse_address(text, "--listen")
    assert address == Address(host, port)
    assert str(address) == shown
    assert parse_address(str(address), "--listen") == address


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "host",
            ":80",
            "host:",
            "host:http",
            "host:-1",
            "host:+1",
            "host:65536",
            "host:8 0",
            "host: 80",
            "host:1_0",
        ),
        *("[]:80", "host:80:", "host:8.0", "host:0x50", "host:²", "host:٣", "host:" + "9" * 5000),
        *("http://host:80", "host/path:80", "a:b:80", "[::1:80", "::1]:80", "[host:80", "ho st:80", "[::g]:80"),
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(text, "--admin")
    assert str(caught.value) == f"--admin {text}: accepted is HOST:PORT, the port from 0 to 65535"


@given(st.text(max_size=12) | st.text(":[]=,#0123456789ab.²", max_size=20))
def test_any_text_is_an_address_or_a_config_error(text: str) -> None:
    try:
        address = parse_address(text, "--listen")
    except ConfigError:
        pass
    else:
        assert address.host and 0 <= address.port < 65_536
    with contextlib.suppress(ConfigError):
        assert all(peer.address is None or peer.address.host for peer in parse_peers(text).values())


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.4", False),
        ("fe80::1", False),
        ("node.example", False),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
    ],
)
def test_who_can_reach_it(host: str, loopback: bool) -> None:
    assert Address(host, 1).loopback is loopback


@pytest.mark.parametrize(
    ("text", "peers"),
    [
        ("", {}),
        (" , ,", {}),
        ("10.0.0.1:7001", {"10.0.0.1:7001": Address("10.0.0.1", 7001)}),
        ("a=h:1,b=h:2", {"a": Address("h", 1), "b": Address("h", 2)}),
        ("a=h:1,,b=h:2,", {"a": Address("h", 1), "b": Address("h", 2)}),
        (" a=h:1 , b=h:2 ", {"a": Address("h", 1), "b": Address("h", 2)}),
        ("a=h:1,b=h:1", {"a": Address("h", 1), "b": Address("h", 1)}),  # one address under two names: dialling tells
        ("a=h:1,h:1", {"a": Address("h", 1), "h:1": Address("h", 1)}),
        ("a=[::1]:1", {"a": Address("::1", 1)}),
        ("[::1]:7001", {"[::1]:7001": Address("::1", 7001)}),  # a name of its own is never needed
        ("[2001:db8::5]:80,a=h:1", {"[2001:db8::5]:80": Address("2001:db8::5", 80), "a": Address("h", 1)}),
    ],
)
def test_peers(text: str, peers: dict[str, Address]) -> None:
    assert parse_peers(text) == {name: PeerAddress(address) for name, address in peers.items()}
    assert list(parse_peers(text)) == list(peers)


def test_peers_that_are_known_by_key() -> None:
    key, other = fingerprint(bytes(32)), fingerprint(bytes(31) + b"1")
    assert parse_peers(f"a=h:1#{key},b=dial-only#{other.lower()}") == {
        "a": PeerAddress(Address("h", 1), key),
        "b": PeerAddress(None, other),
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a=h:1#", "--peers: the fingerprint of a: '' is no fingerprint: accepted are six groups"),
        ("a=h:1#ABCD-EFGH", "--peers: the fingerprint of a: 'ABCD-EFGH' is no fingerprint"),
        ("a=dial-only", "--peers dial-only: accepted is HOST:PORT"),
        ("a", "--peers a: accepted is HOST:PORT"),
        ("a=h", "--peers h: accepted is HOST:PORT"),
        ("a=h:99999", "--peers h:99999: accepted is HOST:PORT"),
        ("h:1 h:2", "--peers h:1 h:2: accepted is HOST:PORT"),  # a forgotten comma
        ("=h:1", "name '': accepted are"),
        ("-a=h:1", "name '-a': accepted are"),
        ("a b=h:1", "name 'a b': accepted are"),
        ("a=b=h:1", "name 'a=b': accepted are"),
        ("../a=h:1", "name '../a': accepted are"),
        ("a=h:1,a=h:2", "--peers a=h:1,a=h:2: a is there twice"),
        ("h:1,h:1", "--peers h:1,h:1: h:1 is there twice"),
        ("h:1, h:01", "--peers h:1, h:01: h:1 is there twice"),
    ],
)
def test_what_is_no_list_of_peers(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_peers(text)
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.2', 7001)"), "Connection refused"),
        (OSError(errno.EHOSTUNREACH, "Multiple exceptions: ..."), "No route to host"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (TimeoutError(), "no answer in time"),
        (OSError("closed"), "closed"),
        (ValueError(), "ValueError"),
    ],
)
def test_why_a_connection_failed_is_said_in_plain_words(error: Exception, words: str) -> None:
    assert why_unreachable(error) == words
