"""The page is one document that loads nothing else, and runs nothing but its own script."""

import base64
import hashlib
import re

from p2p_tally.page.document import ASSETS, SCRIPTS, STYLES, document

# uPlot 1.6.32, as published.
UPLOT = {
    "uplot/uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot/LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


def test_uplot_is_the_one_that_was_published() -> None:
    found = {name: hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() for name in UPLOT}
    assert found == UPLOT
    assert "MIT" in (ASSETS / "uplot/LICENSE").read_text()


def test_every_asset_is_used() -> None:
    files = {path.relative_to(ASSETS).as_posix() for path in ASSETS.rglob("*") if path.is_file()}
    assert files == {*SCRIPTS, *STYLES, "page.html", "uplot/LICENSE"}


def test_the_policy_allows_the_script_and_the_style_of_the_document() -> None:
    text = document().body.decode()
    policy = dict(part.split(" ", 1) for part in document().headers["Content-Security-Policy"].split("; "))
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        [inside] = re.findall(f"<{tag}>(.*?)</{tag}>", text, flags=re.S)
        assert policy[directive] == f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"


def test_nothing_is_loaded_from_elsewhere_and_nothing_becomes_html() -> None:
    own = "".join((ASSETS / name).read_text() for name in ("page.html", *SCRIPTS, *STYLES) if "uplot" not in name)
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", own)
    assert re.findall(r"https?://[^\s'\"]+", own) == ["http://www.w3.org/2000/svg"]
    assert not re.findall(r"\s(?:src|style|on\w+)=", (ASSETS / "page.html").read_text())
