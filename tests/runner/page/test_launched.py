"""The page of a launch and of any nodes: who is followed, and what is refused."""

from pathlib import Path

import pytest
from conftest import small

from p2p_tally.config import ServiceSettings
from p2p_tally.errors import ConfigError
from p2p_tally.runner.launch.launcher import launch
from p2p_tally.runner.page.launched import checked_url, serve_page


@pytest.mark.parametrize("url", ["127.0.0.1:7101", "http://127.0.0.1:7101", "http://127.0.0.1:7101/"])
def test_an_address_with_or_without_its_scheme(url: str) -> None:
    assert checked_url(url) == "127.0.0.1:7101"


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:1", "127.0.0.1", "http://a:1/status", "http://a:99999", "ftp://a:1"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="accepted is"):
        checked_url(url)


def test_a_page_beyond_this_machine_needs_a_word() -> None:
    with pytest.raises(ConfigError, match="--insecure"):
        serve_page(["127.0.0.1:7101"], "0.0.0.0:7100", insecure=False)


def test_a_launch_tells_the_admin_address_of_every_daemon(tmp_path: Path) -> None:
    seen: dict[str, str] = {}
    settings = ServiceSettings(out=tmp_path / "run", device="cpu")
    launch(small(nodes=2, rounds=2, warmup=0), settings, on_admin=lambda name, address: seen.update({name: address}))
    assert seen.keys() == {"node-0", "node-1"}
    assert all(checked_url(address) == address for address in seen.values())
