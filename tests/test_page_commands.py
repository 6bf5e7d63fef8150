"""Every command on every page is run here, or a comment before its block says why not: `<!-- not run: why -->`.

A page's commands run in order, in a folder that holds the files that pages show. They run lightly: few rounds, in this
process, a launch as the simulation with its options (launches have tests of their own). Where a page shows an error, it
must be that error. A block marked `console` runs as it stands, and the words of its output are compared. What is not
run is still read by the program's own parser, so no page names an option that is not there.
"""

import contextlib
import io
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from p2p_tally.cli import UsageError, _usage, app
from p2p_tally.config import DaemonSettings, Federation, ServiceSettings, SimulationSettings, parse_options
from p2p_tally.errors import OperatorError

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / ".github").glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

# Pages whose commands are experiments: hours of computing, on data that must be fetched. Their results are the pages.
# Pages that `p2p-tally report` writes, with the commands that made them. Pages of experiments mark theirs.
EXPERIMENTS = ["docs/results*.md", "docs/topologies.md"]

ELSEWHERE = {"docs/own-method.md": "tests/test_own_method_page.py"}  # pages that another test runs

PROGRAM = r"(?:\$ |p2p-tally (?=[a-z])|\./scripts/|python3? |pip |curl |uv |\.venv/|prometheus )"
BLOCK = re.compile(r"^(?:<!-- not run: (?P<why>.+?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
LIGHT = {"simulate": ["--rounds", "4", "--local-steps", "1"]}


@dataclass(frozen=True)
class Command:
    words: list[str]
    shown: list[str]  # the lines that the page shows after it
    why: str | None  # not run
    exact: bool


def commands(page: Path) -> list[Command]:
    found = []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["language"] in ("", "sh", "console"):
            found += list(_in_block(block["text"].replace("\\\n", ""), block["why"], block["language"] == "console"))
    return found


def _in_block(text: str, why: str | None, exact: bool) -> Iterator[Command]:
    begun: Command | None = None
    for line in text.splitlines():
        if re.match(PROGRAM, line):
            if begun:
                yield begun
            begun = Command(shlex.split(line.removeprefix("$ "), comments=True), [], why, exact)
        elif begun:
            begun.shown.append(line)
    if begun:
        yield begun


def is_experiment(page: Path) -> bool:
    return any(page.relative_to(ROOT).match(pattern) for pattern in EXPERIMENTS)


FILES = {
    name: text
    for page in PAGES
    for name, text in re.findall(
        r"^```(?:python|toml)\n# (\w+\.(?:py|toml))\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S
    )
    if page.name != "README.md"
}
RUN = [page for page in PAGES if str(page.relative_to(ROOT)) not in ELSEWHERE and not is_experiment(page)]
RUN = [page for page in RUN if any(command.why is None for command in commands(page))]


def play(words: list[str]) -> tuple[int, str]:
    """The exit code of a command in this process, and what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        code = 0
        try:
            if words[0] == "python":
                runpy.run_path(words[1], run_name="__main__")
            elif words[0] == "head":
                print("\n".join(Path(words[2]).read_text().splitlines()[: -int(words[1])]))
            else:
                assert words[0] == "p2p-tally", f"no way to run {words[0]}: mark the block as not run"
                typer.main.get_command(app).main(words[1:], standalone_mode=False)
        except OperatorError as error:
            code, message = error.exit_code, str(error)
            print("p2p-tally: " + " ".join(message.split()))
        except UsageError as error:
            code = 2
            print("p2p-tally: " + " ".join(_usage(error).split()))
    return code, printed.getvalue()


def lightly(words: list[str]) -> list[str]:
    if words[:2] == ["p2p-tally", "launch"]:
        words = ["p2p-tally", "simulate", *words[2:]]
    return words + LIGHT.get(words[1], [])


def words_of(line: str) -> str:
    """A line without what differs from machine to machine: numbers, and the room that they take."""
    return re.sub(r"[\s━─]+", " ", re.sub(r"[\d.,]+", "#", line))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A reader's folder: the files that the pages show, and arrays under the names that they use."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 6)).astype("float32"), rng.integers(0, 3, 300)
    np.savez(tmp_path / "task.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
    np.savez(tmp_path / "public.npz", x=x[:40])
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_run(page: Path, desk: Path) -> None:
    if page.name == "README.md":  # which shows a model of its own under a name that another page uses too
        [own] = re.findall(r"^```python\n# mine\.py\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
        (desk / "mine.py").write_text(own, encoding="utf-8")
    for command in commands(page):
        if command.why is not None:
            continue
        refused = [line for line in command.shown if line.startswith("p2p-tally: ")]
        as_it_stands = command.exact or bool(refused) or command.words[0] != "p2p-tally"
        code, printed = play(command.words if as_it_stands else lightly(command.words))
        if refused:
            assert (code, printed.splitlines()[-1]) == (2, refused[0])
        else:
            assert code == 0, f"{shlex.join(command.words)}\n{printed}"
        if command.exact:
            seen = {words_of(line) for line in printed.splitlines()}
            missing = [line for line in command.shown if line and line != "..." and words_of(line) not in seen]
            assert missing == [], printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_program_knows_every_command_and_option_of_a_page(page: Path) -> None:
    group: Any = typer.main.get_command(app)
    settings = {"simulate": SimulationSettings, "launch": ServiceSettings, "node": DaemonSettings}
    for command in commands(page):
        if command.words[0] != "p2p-tally" or any(line.startswith("p2p-tally: ") for line in command.shown):
            continue
        name, *arguments = command.words[1:]
        assert name in group.commands, shlex.join(command.words)
        with group.commands[name].make_context(name, arguments) as context:
            given = {key: value for key, value in context.params.items() if value not in (None, ())}
        if name in settings:
            known = {*Federation.model_fields, *settings[name].model_fields}
            parse_options({key: value for key, value in given.items() if key in known}, settings[name])


@pytest.mark.parametrize("page", ELSEWHERE)
def test_a_page_that_another_test_runs_is_run_there(page: str) -> None:
    assert Path(page).name in (ROOT / ELSEWHERE[page]).read_text(encoding="utf-8")


def test_the_reader_of_pages_finds_commands() -> None:
    """An empty list would pass as well."""
    found = [command for page in PAGES for command in commands(page)]
    assert len(found) > 60 and sum(command.why is None for command in found) > 35  # these are really run
    assert {"simulate", "launch", "node", "payload", "evaluate"} <= {
        command.words[1] for command in found if len(command.words) > 1
    }
