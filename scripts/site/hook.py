"""What mkdocs is told besides mkdocs.yml: pages made from the program, and pages that lie outside docs/.

The Markdown is written for GitHub, where README.md is the first page. Here links to such files are led to their place
on the site; mkdocs itself then checks every link.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import notebook
import reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

# Files outside docs/ and their pages.
MOVED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    ".github/CONTRIBUTING.md": "contributing.md",
    ".github/SECURITY.md": "reporting.md",
    "docs/notebooks/first-hour.ipynb": "notebooks/first-hour.md",
}


def on_config(config: Any) -> Any:
    """Fill in the parts of the navigation that follow from the folders."""
    config["nav"] = _filled(config["nav"])
    return config


def _filled(nav: Any) -> Any:
    """The navigation with a list of pages in place of each name in capitals."""
    if isinstance(nav, list):
        return [_filled(entry) for entry in nav]
    if isinstance(nav, dict):
        return {title: _filled(entry) for title, entry in nav.items()}
    return {"RESULTS": _results, "DECISIONS": _decisions}.get(nav, lambda: nav)()


def _results() -> list[Any]:
    pages = [f"{name}.md" for name in ("results", "field", "results-small", "topologies", "open-questions")]
    experiments = sorted(f"experiments/{path.name}" for path in (DOCS / "experiments").glob("*.md"))
    return [*(page for page in pages if (DOCS / page).is_file()), {"Experiments": experiments}]


def _decisions() -> list[Any]:
    return ["decisions/README.md", *sorted(f"decisions/{path.name}" for path in (DOCS / "decisions").glob("0*.md"))]


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    outside = {page: path for path, page in MOVED.items() if path.endswith(".md")}
    made = {page: led((ROOT / path).read_text(encoding="utf-8"), path) for page, path in outside.items()}
    made |= {
        "notebooks/first-hour.md": notebook.as_markdown(DOCS / "notebooks" / "first-hour.ipynb"),
        "reference/python.md": reference.python_page(),
        "reference/command-line.md": reference.command_line_page(),
    }
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    uri = page.file.src_uri
    return markdown if page.file.generated_by else led(markdown, f"docs/{uri}")


def led(text: str, path: str) -> str:
    """Markdown of the file `path` with its links as they are on the site."""
    here = Path(MOVED.get(path, path.removeprefix("docs/"))).parent

    def lead(link: re.Match[str]) -> str:
        target, anchor = link[1], link[2] or ""
        if target.startswith("http") or not target:
            return link[0]
        place = os.path.normpath((Path(path).parent / target).as_posix())
        if place.startswith("docs/") or place in MOVED:
            place = MOVED.get(place, place.removeprefix("docs/"))
            return f"]({os.path.relpath(place, here)}{anchor})"
        return link[0]

    return re.sub(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", lead, text)
