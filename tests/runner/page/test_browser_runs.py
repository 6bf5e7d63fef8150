"""Real daemons seen in a real browser: from start to finish, killed, and started again."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import chromium, opened
from conftest import command, kept_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with chromium() as found:
        yield found


def test_four_daemons_from_start_to_finish_and_one_is_killed(
    browser: "Browser", tmp_path: Path, quiet_environment: dict[str, str]
) -> None:
    # Rounds that take a while on any machine: the page must see them begin, and long before they end.
    options = ["--nodes=4", "--rounds=250", "--local-steps=10", "--warmup=2", "--merge-every=40", "--barrier-timeout=3"]
    launch = command("launch", "--page", f"--out={tmp_path / 'run'}", *options)
    with subprocess.Popen(launch, env=quiet_environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = re.search(r"page at (http://\S+)", process.stderr.readline())
        assert address is not None
        with opened(browser, address[1]) as page:
            page.wait_for_function("() => document.querySelectorAll('#nodes tbody tr').length === 4")
            page.wait_for_selector("#verdict.well")
            os.kill(int((tmp_path / "run" / "node-3.pid").read_text()), signal.SIGKILL)
            page.wait_for_selector("#verdict.bad")
            assert "node-3 does not answer" in page.inner_text("#concerns")
            assert page.locator("#graph g.unreachable").count() == 1
            page.wait_for_function("() => document.getElementById('contact').textContent.includes('how it ended')")
            assert page.inner_text("#verdict-words") == "✕ node-3 does not answer."
            assert "Of 4 nodes 3 finished" in page.inner_text("#verdict-progress")
            states = page.locator("#nodes tbody tr td:nth-child(2)").all_inner_texts()
            assert states == ["✓ finished"] * 3 + ["✕ does not answer"]
            assert page.locator("#tally .probe").count() == 6
            assert "node-3" in page.inner_text("#problems")
        process.communicate()
    assert process.returncode == 1  # one node did not finish


def test_a_page_survives_a_node_that_is_killed_and_started_again(
    browser: "Browser", tmp_path: Path, quiet_environment: dict[str, str]
) -> None:
    admin = f"127.0.0.1:{kept_port()}"
    alone = command(
        "node", "--listen=127.0.0.1:0", "--name=a", "--peers=b=127.0.0.1:1", f"--admin={admin}", f"--out={tmp_path}"
    )

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(alone, env=quiet_environment, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        for line in process.stderr:
            if "admin at" in line:
                return process
        raise AssertionError("it ended before it served its page")

    first = start()
    try:
        with opened(browser, f"http://{admin}/") as page:
            assert "a waits for b" in page.inner_text("#concerns")
            first.kill()
            first.communicate()
            page.wait_for_selector("#contact.lost")
            assert page.inner_text("#contact").startswith(f"No contact with {admin} since")
            assert "a waits for b" in page.inner_text("#concerns")  # what was known stays
            first = start()
            page.wait_for_selector("#contact:not(.lost)")
            assert page.inner_text("#contact") == "live"
    finally:
        first.kill()
        first.communicate()
