"""A release says one version everywhere, and its changelog speaks to users."""

import re
import tomllib
from pathlib import Path

import yaml

from p2p_tally import __version__

ROOT = Path(__file__).parents[1]
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## (\S+)", CHANGES, re.M)
    assert newest is not None
    assert project["version"] == citation["version"] == newest[1] == __version__


def test_the_changelog_is_grouped_by_what_a_user_sees() -> None:
    assert set(re.findall(r"^### (.*)$", CHANGES, re.M)) <= {"Added", "Changed", "Fixed", "Removed"}
    assert len(re.findall(r"^- ", CHANGES, re.M)) > 30


def test_the_paper_is_cited_with_the_same_words() -> None:
    paper = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["preferred-citation"]
    page = (ROOT / "docs" / "explanation.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert page.count(paper["title"]) == 2 and str(paper["year"]) in page
    for author in paper["authors"]:
        for text in (page, readme):
            assert f"{author['given-names']} {author['family-names']}" in text


def test_issue_templates_are_forms_that_github_reads() -> None:
    for name in ("bug", "idea"):
        form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= set(form)
        assert all(part["type"] in ("textarea", "input") and part["attributes"]["label"] for part in form["body"])


def test_every_extra_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    assert [extra for extra in project["optional-dependencies"] if f"`{extra}`" not in page] == []
