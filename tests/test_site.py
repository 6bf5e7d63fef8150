"""The site builds without a warning: no broken link, no page left out; its reference is the program's own."""

import html
import re
from pathlib import Path
from typing import Any

import pytest
import typer

pytest.importorskip("material", reason="mkdocs-material is not installed")

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

import p2p_tally
from p2p_tally.cli import app
from p2p_tally.config import Federation

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "scripts" / "site" / "mkdocs.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(load_config(config_file=str(CONFIG), site_dir=str(folder), strict=True))
    return folder


def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def test_every_page_is_there(site: Path) -> None:
    """The build itself fails on a link that leads nowhere, and on a page that the navigation leaves out."""
    left_out = {"results-opening.md", "field-opening.md"}
    for page in (ROOT / "docs").rglob("*.md"):
        path = page.relative_to(ROOT / "docs")
        if path.name not in left_out:
            place = path.parent if path.name == "README.md" else path.with_suffix("")
            assert (site / place / "index.html").is_file(), path
    for name in ("changelog", "contributing", "reporting", "notebooks/first-hour"):
        assert (site / name / "index.html").is_file()


def test_the_command_line_page_has_every_command_and_option(site: Path) -> None:
    shown = text_of(site / "reference" / "command-line" / "index.html")
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        assert f"p2p-tally {name}" in shown
        options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
        assert [one.opts[0] for one in options if one.opts[0] not in shown] == []
    assert Federation.about("alpha")["meaning"] in shown


def test_the_python_page_has_every_public_name_and_its_docstring(site: Path) -> None:
    shown = " ".join(text_of(site / "reference" / "python" / "index.html").split())
    for name in p2p_tally.__all__:
        assert name in shown
    assert "for the length of an async with block" in shown  # of Daemon
    assert "The model in a file that a run has saved." in shown  # of load


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//(?!127)[^"]*"', page) == []


@pytest.mark.parametrize(
    "text", ["[nowhere](nowhere.md)", "[no heading](#nothing)", "![no picture](gone.svg)", "[a folder](folder/)"]
)
def test_a_broken_link_fails_the_build(text: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Page\n\n{text}\n", encoding="utf-8")
    options = {"docs_dir": str(tmp_path / "docs"), "site_dir": str(tmp_path / "site"), "strict": True}
    config = load_config(config_file=str(CONFIG), nav=["index.md"], hooks=[], plugins=[], theme="mkdocs", **options)
    with pytest.raises(Abort, match="strict mode"):
        build(config)
