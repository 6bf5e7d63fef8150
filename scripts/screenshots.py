"""Pictures of the live page for the docs: a launch of 8 daemons seen in Chromium, then with one of them killed.

    python scripts/screenshots.py [FOLDER]     (default: docs/images)

It needs Debian's chromium (or another, named in the variable CHROMIUM) and the Python package playwright.
"""

import argparse
import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    from PIL import Image
    from playwright.sync_api import Browser, Page, sync_playwright
except ModuleNotFoundError as error:
    sys.exit(f"screenshots.py needs {error.name}: scripts/setup dev installs it")

ROUNDS = 600
SHOWN = 110  # the round of the pictures: after the first merge, and the nodes do not agree on everything yet
DEADLINE = 120_000  # milliseconds


@contextlib.contextmanager
def federation(out: Path) -> Iterator[str]:
    """Eight daemons that learn together; yields the address of their page."""
    options = ["--nodes=8", f"--rounds={ROUNDS}", "--topology=gossip", "--degree=4", "--barrier-timeout=2"]
    options.append("--partition=dirichlet:0.1")  # they see different classes, so their votes differ
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
    )
    page.goto(url)
    return page


def take(page: Page, path: Path, whole: bool) -> None:
    with Image.open(io.BytesIO(page.screenshot(full_page=whole, animations="disabled"))) as picture:
        picture.convert("RGB").save(path, optimize=True)


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
        browser = playwright.chromium.launch(executable_path=chromium)
        with federation(out) as url:
            light = open_page(browser, url, "light", 1240, 900)
            dark = open_page(browser, url, "dark", 1240, 900)
            phone = open_page(browser, url, "light", 390, 844)
            wait_for_round(light, SHOWN)
            for name, page in (("page-light", light), ("page-dark", dark), ("page-phone", phone)):
                take(page, folder / f"{name}.png", whole=True)
            os.kill(int((out / "node-3.pid").read_text()), signal.SIGKILL)
            light.wait_for_selector("#verdict.bad", timeout=DEADLINE)
            light.wait_for_selector("#nodes td:last-child:text('node-3')", timeout=DEADLINE)  # others miss it too
            take(light, folder / "page-killed.png", whole=False)
        browser.close()
    for path in sorted(folder.glob("page-*.png")):
        print(path)


if __name__ == "__main__":
    main()
