"""The page of any nodes: what is refused. The page of a launch is seen in test_browser_runs.py."""

import pytest

from p2p_tally.errors import ConfigError
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
