"""Names, addresses and keys from the options of a node."""

import logging
from pathlib import Path
from typing import Any

import pytest

from p2p_tally.config import DaemonSettings
from p2p_tally.errors import ConfigError
from p2p_tally.node.links.addresses import Address
from p2p_tally.node.service.whereabouts import whereabouts
from p2p_tally.trust.identity import make_identity


def settings(**values: Any) -> DaemonSettings:
    return DaemonSettings.parse({"name": "alice", **values})


def test_with_fingerprints_links_are_tls_and_need_no_consent(tmp_path: Path) -> None:
    own, bob, carol = (make_identity(tmp_path / name) for name in ("alice", "bob", "carol"))
    peers = f"bob=10.0.0.2:7001#{bob.fingerprint},carol=dial-only#{carol.fingerprint.lower()}"
    found = whereabouts(settings(listen="0.0.0.0:7001", peers=peers, home=own.file.parent))
    assert found.security is not None and found.security.credential == own.credential.raw
    assert found.peers == {"bob": Address("10.0.0.2", 7001), "carol": None}
    assert whereabouts(settings(dial_only=True, peers=peers, home=own.file.parent)).listen is None


def test_plain_text_beyond_this_machine_is_said_at_every_start(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = whereabouts(settings(listen="0.0.0.0:7001", peers="bob=10.0.0.2:7001", insecure=True))
        assert found.security is None
        assert "is plain text" in caplog.text
        caplog.clear()
        whereabouts(settings(listen="127.0.0.1:7001", peers="bob=127.0.0.1:7002", insecure=True))
        assert not caplog.text


def test_mistakes(tmp_path: Path) -> None:
    own, bob, carol = (make_identity(tmp_path / name) for name in ("alice", "bob", "carol"))
    pinned = f"bob=h:1#{bob.fingerprint}"
    home = own.file.parent
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"peers": f"{pinned},carol=h:2", "home": home},
            "--peers: carol has no fingerprint; accepted is NAME=HOST:PORT#",
        ),
        ({"peers": pinned}, "--peers: fingerprints need this node's own key; add --home DIR"),
        (
            {"peers": pinned, "home": tmp_path / "none"},
            f"--home {tmp_path / 'none'}: holds no key; make one: p2p-tally",
        ),
        ({"peers": f"bob=h:1#{own.fingerprint}", "home": home}, "--peers: bob has the fingerprint of this node itself"),
        ({"peers": f"{pinned},c=h:2#{bob.fingerprint}", "home": home}, "--peers: c has the fingerprint of bob"),
        ({"peers": "bob=h:1", "dial_only": True}, "--dial-only: needs peers that are known by key"),
        ({"peers": pinned, "home": home, "dial_only": True, "name": None}, "--dial-only: a node without an address"),
        ({"peers": f"alice=h:1#{carol.fingerprint}", "home": home}, "--peers alice=h:1#"),
        ({"listen": "0.0.0.0:1", "peers": "bob=h:1"}, "--listen 0.0.0.0:1: reachable from other machines"),
    ]
    for values, complaint in cases:
        with pytest.raises(ConfigError) as caught:
            whereabouts(settings(**values))
        assert str(caught.value).startswith(complaint)
