"""docs/own-method.md does what it says: its files are written, its commands run, its output is compared."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "own-method.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, flags=re.M | re.S)
FILES = {
    text.partition("\n")[0].removeprefix("# "): text
    for language, text in BLOCKS
    if language in ("python", "toml") and re.match(r"# \w+\.(py|toml)\n", text)
}
COMMANDS = [line.removeprefix("$ ") for _, text in BLOCKS for line in text.splitlines() if line.startswith("$ ")]


def run(*arguments: str, folder: Path, script: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, input=script, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The page's commands, run in order in a folder that holds only its files; what each printed."""
    folder = tmp_path_factory.mktemp("page")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    printed = {}
    for command in COMMANDS:
        program, *arguments = command.split()
        assert program == "p2p-tally"
        printed[arguments[0]] = run("-m", "p2p_tally", *arguments, folder=folder)
    return folder, printed


def test_the_page_has_the_parts_that_this_test_runs() -> None:
    assert list(FILES) == ["mine.py", "compare.toml"]
    assert [command.split()[1] for command in COMMANDS] == ["simulate", "payload", "sweep", "report"]


def test_an_empty_file_becomes_a_figure_in_under_forty_lines() -> None:
    lines = [line for text in FILES.values() for line in text.splitlines()[1:] if line.strip()]
    assert 20 < len(lines) < 40


def test_what_the_page_shows_is_what_is_printed(played: tuple[Path, dict[str, str]]) -> None:
    _, printed = played
    shown = [line for _, text in BLOCKS if "$ " in text for line in text.splitlines()]
    rows = [line for line in shown if line.startswith("│")]
    assert len(rows) == 2 and all(row in printed["payload"] for row in rows)
    sent = [line.partition(";")[0] for line in shown if line.startswith("sent per peer")]
    assert sent[0] in printed["simulate"]
    assert next(line for line in shown if line.startswith("run folder")) in printed["simulate"]
    assert "written: report.md" in printed["report"]


def test_the_figures_show_the_row_in_its_own_colour_and_label(played: tuple[Path, dict[str, str]]) -> None:
    folder, printed = played
    assert "confident votes on digits" in printed["simulate"]  # as in the title of its figure
    figures = sorted(folder.glob("report-figures/*.svg"))
    assert figures
    assert all("#882255" in figure.read_text().lower() for figure in figures)
    assert "#882255" in (folder / "runs/confident-mesh-4-seed0/accuracy.svg").read_text().lower()
    report = (folder / "report.md").read_text()
    assert "| `confident` |" in report and "| `tally` |" in report


def test_the_notebook_form_needs_no_module(tmp_path: Path) -> None:
    [script] = [text for language, text in BLOCKS if language == "python" and text not in FILES.values()]
    assert run("-", folder=tmp_path, script=script) == "eager (40, 3)\n"
    assert "\n```\neager (40, 3)\n```\n" in PAGE
    refused = script + "simulate(Federation(method=eager), p2p_tally.NodeSettings(out='run'))\n"
    done = subprocess.run(
        [sys.executable, "-"],
        input="import p2p_tally\n" + refused,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    [message] = [text.strip() for _, text in BLOCKS if text.startswith("--method eager: ")]
    assert done.stderr.endswith(f"ConfigError: {message}\n")


def test_a_target_of_the_wrong_shape_is_the_line_on_the_page(tmp_path: Path) -> None:
    """The page's own row, with a target that has lost its first axis."""
    wrong = FILES["mine.py"].replace("return target / target.sum(1, keepdims=True)", "return target[0]")
    (tmp_path / "mine.py").write_text(wrong, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "p2p_tally", "simulate", "--method", "mine:CONFIDENT"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr in PAGE
