"""Pictures of the live page for the docs: a launch of 8 daemons seen in Chromium, then with one of them killed.

    python scripts/screenshots.py [FOLDER]     (default: docs/images)

It needs Debian's chromium (or another, named in the variable CHROMIUM) and the Python package playwright.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROUNDS = 600
DEADLINE = 120_000  # milliseconds
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@contextlib.contextmanager
def federation(out: Path) -> Iterator[str]:
    """Eight daemons that learn together; yields the address of their page."""
    options = ["--nodes=8", f"--rounds={ROUNDS}", "--topology=gossip", "--degree=4", "--barrier-timeout=2"]
    command = [sys.executable, "-m", "p2p_tally", "launch", "--page", f"--out={out}", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if found := re.search(r"page at (http://\S+)", line):
                    yield found[1]
                    return
            raise SystemExit("the launch ended without a page")
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


def open_page(browser: Browser, url: str, scheme: str, width: int, height: int) -> Page:
    page = browser.new_page(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": height},
        device_scale_factor=1.5,
    )
    page.goto(url)
    return page


def wait_for_round(page: Page, round: int) -> None:
    page.wait_for_function(
        "round => Number(document.querySelector('#nodes tbody tr td:nth-child(3)')?.textContent) >= round",
        arg=round,
        timeout=DEADLINE,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[1] / "docs" / "images")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        raise SystemExit("scripts/screenshots.py: no chromium found; install Debian's, or name one in CHROMIUM")
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        out = Path(temporary) / "run"
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        with federation(out) as url:
            light = open_page(browser, url, "light", 1240, 900)
            dark = open_page(browser, url, "dark", 1240, 900)
            phone = open_page(browser, url, "light", 390, 844)
            wait_for_round(light, ROUNDS // 3)
            for name, page in (("page-light", light), ("page-dark", dark), ("page-phone", phone)):
                page.screenshot(path=folder / f"{name}.png", full_page=True)
            os.kill(int((out / "node-3.pid").read_text()), signal.SIGKILL)
            light.wait_for_selector("#verdict.bad", timeout=DEADLINE)
            light.wait_for_timeout(2500)  # until the others have missed it too
            light.locator("#verdict").scroll_into_view_if_needed()
            light.screenshot(path=folder / "page-killed.png")
        browser.close()
    for path in sorted(folder.glob("page-*.png")):
        print(path)


if __name__ == "__main__":
    main()
