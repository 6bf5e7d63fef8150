"""The pages hang together: links lead somewhere, and every experiment has its page."""

import re
from pathlib import Path

import pytest

from p2p_tally.runner.experiments.experiment import preset_names

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / ".github").glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def headings(page: Path) -> set[str]:
    """The names that links can give a page's headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        to = page if not target else (page.parent / target).resolve()
        assert to.exists(), f"{target} is not there"
        assert not heading or heading in headings(to), f"{target}#{heading}: no such heading"


def test_the_list_of_decisions_is_complete() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"^- \[\d+\]\((.*?)\): ", (folder / "README.md").read_text(encoding="utf-8"), flags=re.M)
    assert listed == sorted(path.name for path in folder.glob("0*.md"))


# What stands on the page of another experiment; twins stand on that of their full one.
TOGETHER = {
    "byzantine-messages": "byzantine",
    "votes-or-labels-features": "votes-or-labels",
    "consensus-weight-text": "consensus-weight-features",
    "choice-features": "recipe-features",
    "recipe-text": "recipe-features",
}
TWINS = [
    name
    for name in preset_names()
    for kind in ("-small", "-features")
    if name.endswith(kind) and name.removesuffix(kind) in preset_names()
]


@pytest.mark.parametrize("name", [name for name in preset_names() if name not in {*TWINS, *TOGETHER, "default"}])
def test_every_experiment_has_a_page(name: str) -> None:
    page = ROOT / "docs" / "experiments" / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    assert headings(page) >= {"what-is-asked", "how-to-run-it", "what-we-found"}
    assert f"p2p-tally sweep {name} " in text
    beside = [f"{name}-small", f"{name}-features", *(other for other, page in TOGETHER.items() if page == name)]
    for other in set(beside) & set(preset_names()):
        assert f"p2p-tally sweep {other} " in text
    assert f"(experiments/{name}.md)" in (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_a_page_names_are_there(page: Path) -> None:
    """Of the repository, or of p2p_tally: `protocol/frames.py`."""
    if page.name == "CHANGELOG.md":  # which tells of the past
        return
    named = re.findall(r"`((?:[\w.-]+/)+[\w-]+\.py)\b[^`]*`", page.read_text(encoding="utf-8"))
    missing = [path for path in named if not (ROOT / path).is_file() and not (ROOT / "p2p_tally" / path).is_file()]
    assert missing == []
