"""What is shown on a terminal of 80 columns fits it: tables, live pictures, and the echo of Ctrl-C."""

import os
import pty
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from p2p_tally.runner.console.progress import Progress
from p2p_tally.runner.console.status import Current
from p2p_tally.runner.console.terminal import ECHO, Column, WithRoom, shortened, table_for

COLUMNS = (
    Column("name", words=True),
    Column("bytes"),
    Column("ratio", least_useful=1),
    Column("nodes", least_useful=2),
)


def lines_of(shown: RenderableType, width: int) -> list[str]:
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(shown)
    return capture.get().splitlines()


def test_a_name_is_shortened_in_its_middle() -> None:
    assert shortened(["one-peer-exponential", "ring"], 11) == ["one-p…ntial", "ring"]
    assert shortened(["mesh", "ring"], 11) == ["mesh", "ring"]


def test_names_stay_apart_where_they_can() -> None:
    names = [f"node-{number}.of-a-long.example.org" for number in range(3)]
    assert shortened(names, 13) == ["node-0…le.org", "node-1…le.org", "node-2…le.org"]
    names = [f"the-hospital-of-the-north-{number}-a" for number in range(3)]
    assert len(set(shortened(names, 8))) == 3


def test_the_least_useful_column_goes_first_and_no_figure_is_cut() -> None:
    rows = [["a-name-of-some-length", "123,456,789", "0.500", "1000"]]
    for width, titles in (
        (80, "name bytes ratio nodes"),
        (48, "name bytes ratio"),
        (40, "name bytes"),
        (26, "name bytes"),
    ):
        lines = lines_of(table_for(width, COLUMNS, rows), width)
        assert re.findall(r"\w+", lines[1]) == titles.split(), width
        assert "123,456,789" in lines[3]
        assert len(lines) == 5 and all(len(line) <= width for line in lines)


@given(
    st.lists(
        st.tuples(st.text("abc-", max_size=60), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9)),
        max_size=5,
    ),
    st.integers(30, 120),
)
def test_a_table_is_never_wider_than_it_may_be(values: list[tuple[str, int, int, int]], width: int) -> None:
    rows = [[name, *map(str, figures)] for name, *figures in values]
    lines = lines_of(table_for(width, COLUMNS, rows), width)
    assert all(len(line) <= width for line in lines)
    assert len(lines) == 4 + max(1, len(rows)) - (not rows)
    assert all(row[1] in line for row, line in zip(rows, lines[3:], strict=False))


def status(name: str, missing: list[str]) -> dict[str, object]:
    return {
        "url": "127.0.0.1:7101",
        "name": name,
        "round": 1234,
        "rounds": 40000,
        "phase": "evaluate",
        "accuracy": 91.25,
        "payload_bytes": 123_456_789,
        "missing": missing,
    }


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_watched_table_fits_and_leaves_room_for_the_echo_of_an_interrupt(width: int) -> None:
    names = [f"hospital-{number}.north.example.org" for number in range(3)]
    nodes = [status(name, names) for name in names]
    lines = lines_of(WithRoom(Current(nodes)), width)
    assert len(lines) == 4 + len(nodes)  # none is wrapped
    assert all(len(line) <= width - ECHO for line in lines)
    assert all("1234/40000" in line and "91.2" in line for line in lines[3:-1])
    assert ("123,456,789" in lines[3]) == (width == 200)
    shown = {line.split()[1] for line in lines[3:-1]}
    assert len(shown) == (3 if width >= 80 else 1)  # from 80 columns on the names are still told apart


def test_the_bar_of_a_run_leaves_room_too(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress(4000)
    progress._bar.update(
        progress._task, completed=1234, description="accuracy  91.5 %  spread  1.3  sent 113.7 kB/peer"
    )
    (line,) = lines_of(progress._bar.get_renderable(), 80)
    assert len(line.rstrip()) <= 80 - ECHO
    assert "1234/4000" in line and "113.7 kB/peer" in line


def test_a_comparison_of_graphs_fits_a_terminal_of_80_columns(quiet_environment: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    graphs = ["mesh", "gossip", "one-peer-exponential"]
    command = [sys.executable, "-m", "p2p_tally", "topology", *graphs, "--nodes=256", "--parameters=11181642"]
    environment = quiet_environment | {"COLUMNS": "80", "TERM": "xterm"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
    os.close(ours)
    assert process.returncode == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r", "").splitlines()
    assert all(len(line) <= 80 for line in lines), lines
    assert any("one-peer-exponential" in line and "44,726,568" in line for line in lines)
