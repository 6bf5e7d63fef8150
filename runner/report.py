"""A report from runs: tables and figures, as Markdown with SVG files beside it or as one self-contained HTML file."""

import html
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from p2p_tally.errors import ConfigError
from runner.figures import STYLE
from runner.report_figures import SWEPT, along, pareto, ratio, stabilisation
from runner.results import Results, collect
from runner.tables import conditions, table

CSS = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #111; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.7rem; text-align: right; border-bottom: 1px solid #ddd; }
th { border-bottom: 2px solid #111; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; font-family: ui-monospace, monospace; }
figure { margin: 1.5rem 0; } figure svg { max-width: 100%; height: auto; } figcaption { color: #444; }
.wide { overflow-x: auto; }
"""


def markdown_tables(paths: Sequence[Path]) -> str:
    return "\n\n".join(_section(results) for results in collect(paths))


def write_report(paths: Sequence[Path], out: Path) -> None:
    writers = {".html": _write_html, ".md": _write_markdown}
    if out.suffix not in writers:
        raise ConfigError(f"--out {out}: accepted is a file that ends in .html or .md")
    found = collect(paths)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        writers[out.suffix](found, out)
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror}; accepted is a file that can be written") from None


def figures(found: Sequence[Results]) -> Iterator[tuple[Results | None, str, str, Figure]]:
    """Whose it is (None: of all), a short name, a caption, the figure."""
    for number, results in enumerate(found, 1):
        captions = {
            "pareto": "Tail accuracy against bytes sent by a peer; the dashed line joins what nothing cheaper beats.",
            "peers": "Mean over peers, band of one standard deviation between them; grey: the other cells' means.",
        }
        made = {"pareto": pareto(results), "peers": stabilisation(results)}
        for option, swept in SWEPT.items():
            made[option.replace("_", "-")] = along(results, option)
            captions[option.replace("_", "-")] = f"Tail accuracy by {swept.label}."
        for name, figure in made.items():
            if figure is not None:
                yield results, f"{number}-{results.name}-{name}", captions[name], figure
    every = ratio(found)
    if every is not None:
        yield None, "ratio", "How many times the bytes of a vote a soft label takes, by the number of classes.", every


def _section(results: Results) -> str:
    return f"## {results.title}\n\n{conditions(results)}\n\n{table(results).markdown()}"


def _write_markdown(found: Sequence[Results], out: Path) -> None:
    folder = out.with_name(out.stem + "-figures")
    folder.mkdir(exist_ok=True)
    drawn = list(figures(found))
    parts = ["# Results", "Written by `p2p-tally report`."]

    def show(owner: Results | None) -> None:
        for whose, name, caption, figure in drawn:
            if whose is owner:
                (folder / f"{name}.svg").write_text(_svg(figure), encoding="utf-8")
                parts.append(f"![{caption}]({folder.name}/{name}.svg)\n\n*{caption}*")

    for results in found:
        parts.append(_section(results))
        show(results)
    if any(whose is None for whose, *_ in drawn):
        parts.append("## Bytes by the number of classes")
        show(None)
    out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _write_html(found: Sequence[Results], out: Path) -> None:
    drawn = list(figures(found))
    parts = ["<h1>Results</h1>"]

    def show(owner: Results | None) -> None:
        for whose, name, caption, figure in drawn:
            if whose is owner:
                parts.append(f"<figure>{_inline(figure, name)}<figcaption>{html.escape(caption)}</figcaption></figure>")

    for results in found:
        parts += [f"<h2>{html.escape(results.title)}</h2>", f"<p>{html.escape(conditions(results))}</p>"]
        parts.append(f'<div class="wide">{table(results).html()}</div>')
        show(results)
    if any(whose is None for whose, *_ in drawn):
        parts.append("<h2>Bytes by the number of classes</h2>")
        show(None)
    head = f'<meta charset="utf-8">\n<title>p2p-tally report</title>\n<style>{CSS}</style>'
    page = f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n' + "\n".join(parts)
    out.write_text(page + "\n</body>\n</html>\n", encoding="utf-8")


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
