"""The page as one HTML document: its script, its style and uPlot are put into it, so a browser loads nothing else.

The content security policy names the digests of these two parts. Nothing else can run in the page or change its style,
whatever a node's name or a log line contains, and the page can ask nobody but the server that it came from.
"""

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ASSETS = Path(__file__).parent / "assets"

STYLES = ("uplot/uPlot.min.css", "page.css")
SCRIPTS = (
    "uplot/uPlot.iife.min.js",
    "dom.js",
    "store.js",
    "graph.js",
    "charts.js",
    "tally.js",
    "agreement.js",
    "page.js",
)


@dataclass(frozen=True)
class Document:
    body: bytes
    headers: dict[str, str]


@cache
def document() -> Document:
    style = "\n".join(_read(name) for name in STYLES)
    script = "\n".join(_read(name) for name in SCRIPTS)
    text = _read("page.html").replace("/* style */", style).replace("/* script */", script)
    return Document(
        text.encode(),
        {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": policy(script, style),
            "Cache-Control": "no-store",
            "Cross-Origin-Opener-Policy": "same-origin",
        },
    )


def policy(script: str, style: str) -> str:
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ]
    )


def _read(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
