"""A document as a list of blocks, and its two forms: Markdown with SVG files beside it, or one HTML file.

Text may carry `code`, **bold** and [links](TARGET), and in a table line breaks; nothing else. Knows nothing of runs.
"""

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from p2p_tally.runner.report.accuracy_figure import STYLE

CSS = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #111; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.7rem; text-align: right; border-bottom: 1px solid #ddd; vertical-align: top; }
th { border-bottom: 2px solid #111; vertical-align: bottom; }
th:first-child, td:first-child, .words td, .words th { text-align: left; }
figure { margin: 1.5rem 0; } figure svg { max-width: 100%; height: auto; } figcaption { color: #444; }
.wide { overflow-x: auto; }
"""


@dataclass(frozen=True)
class Heading:
    level: int
    text: str


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """`words`: a table of sentences, flush left, not of figures."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: bool = False


@dataclass(frozen=True)
class Picture:
    name: str  # of its file
    caption: str
    figure: Figure


Block = Heading | Text | Bullets | Table | Picture


def anchor(heading: str) -> str:
    """What a link to a heading names: `#anchor`, as pages of Markdown make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def as_markdown(blocks: Sequence[Block], folder: str = "") -> str:
    """`folder`: where the pictures are, seen from the file."""
    return "\n\n".join(_markdown(block, folder) for block in blocks) + "\n"


def _markdown(block: Block, folder: str) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {text}"
        case Text(text):
            return text
        case Bullets(items):
            return "\n".join(f"- {item}" for item in items)
        case Table(header, rows, words):
            rule = ["---"] + ["---" if words else "---:"] * (len(header) - 1)
            lines = [header, rule, *([text.replace("|", "\\|").replace("\n", "<br>") for text in row] for row in rows)]
            return "\n".join("| " + " | ".join(line) + " |" for line in lines)
        case Picture(name, caption, _):
            return f"![{caption}]({folder}/{name}.svg)\n\n*{caption}*"


def write_markdown(blocks: Sequence[Block], out: Path) -> None:
    """The file, and a folder of its pictures; pictures of an earlier report that are no longer in it go."""
    folder = out.with_name(out.stem + "-figures")
    pictures = [block for block in blocks if isinstance(block, Picture)]
    if pictures:
        folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for picture in pictures:
        (folder / f"{picture.name}.svg").write_text(_svg(picture.figure), encoding="utf-8")
    out.write_text(as_markdown(blocks, folder.name), encoding="utf-8")


def write_html(blocks: Sequence[Block], out: Path) -> None:
    title = next((block.text for block in blocks if isinstance(block, Heading)), "p2p-tally report")
    head = f'<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n<style>{CSS}</style>'
    page = f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n'
    page += "\n".join(_html(block) for block in blocks)
    out.write_text(page + "\n</body>\n</html>\n", encoding="utf-8")


def _html(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f'<h{level} id="{anchor(text)}">{_marked(text)}</h{level}>'
        case Text(text):
            return f"<p>{_marked(text)}</p>"
        case Bullets(items):
            return "<ul>\n" + "\n".join(f"<li>{_marked(item)}</li>" for item in items) + "\n</ul>"
        case Table(header, rows, words):
            head = "".join(f"<th>{_marked(text)}</th>" for text in header)
            body = "\n".join("<tr>" + "".join(f"<td>{_marked(text)}</td>" for text in row) + "</tr>" for row in rows)
            kind = ' class="words"' if words else ""
            table = f"<table{kind}>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
            return f'<div class="wide">{table}</div>'
        case Picture(name, caption, figure):
            return f"<figure>{_inline(figure, name)}<figcaption>{_marked(caption)}</figcaption></figure>"


def _marked(text: str) -> str:
    text = html.escape(text).replace("\n", "<br>")
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    text = re.sub(r"\[([^\[\]]+)\]\(([^()\s]+)\)", r'<a href="\2">\1</a>', text)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _inline(figure: Figure, name: str) -> str:
    """The svg element alone, its ids made its own: several figures share one page."""
    text = _svg(figure)
    text = text[text.index("<svg") :]
    text = re.sub(r'\bid="', f'id="{name}-', text)
    return re.sub(r'(url\(|href=")#', rf"\g<1>#{name}-", text)
