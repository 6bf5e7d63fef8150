"""A real browser for tests: Debian's chromium, driven by playwright. Without either the tests that want it are skipped.

With the variable P2P_TALLY_BROWSER=required they fail instead, so that they are never left out by mistake.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Milliseconds: far more than anything takes, on a machine that is busy with other things too.
DEADLINE = 90_000


@contextmanager
def chromium() -> Iterator["Browser"]:
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if program is None:
        _missing("no chromium: install Debian's package, or name a program in CHROMIUM")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("no playwright: pip install p2p-tally[dev]")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()


def _missing(why: str) -> None:
    if os.environ.get("P2P_TALLY_BROWSER") == "required":
        pytest.fail(why)
    pytest.skip(why)


@contextmanager
def opened(browser: "Browser", url: str, **options: object) -> Iterator["Page"]:
    """A page without errors: what it logs as an error, an exception, or a breach of its policy fails the test."""
    page = browser.new_page(**options)  # type: ignore[arg-type]
    page.set_default_timeout(DEADLINE)
    wrong: list[str] = []
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" and _ours(line.text) else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    page.goto(url)
    page.wait_for_selector("body[data-serial]")
    yield page
    page.close()
    assert wrong == []


def _ours(text: str) -> bool:
    """That a server is gone is not the page's error."""
    return "net::ERR_" not in text
