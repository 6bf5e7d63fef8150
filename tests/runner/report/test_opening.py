"""The opening of a report: its Markdown, and the figures that are filled in."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_sweep import make_sweep

from p2p_tally.errors import ConfigError
from p2p_tally.runner.report.document import Block, Bullets, Heading, Table, Text, as_markdown
from p2p_tally.runner.report.opening import fill_in, read_opening
from p2p_tally.runner.report.report import write_report
from p2p_tally.runner.report.results import CellResults, Results, collect


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sweep(tmp_path_factory.mktemp("sweeps") / "hybrid", "hybrid-small", leave_out=("no-consensus",))


@pytest.fixture(scope="module")
def found(hybrid: Path) -> list[Results]:
    return collect([hybrid])


def tail(results: Results, name: str) -> float:
    [cell] = [cell for cell in results.cells if cell.name == name]
    measured = cell.metric("tail")
    assert measured is not None
    return measured.mean


def test_figures_are_those_of_the_runs(found: list[Results]) -> None:
    votes, soft = (tail(found[0], name) for name in ("tally", "fedmd"))
    assert soft > votes + 1
    told = fill_in(
        "{hybrid-small: tally.tail} {hybrid-small: fedmd.tail - tally.tail} {hybrid-small:\ntally.tail - fedmd.tail} "
        "{hybrid-small: tally.payload} {hybrid-small: fedmd.payload / tally.payload} {x} {}",
        found,
        "here",
    )
    by = f"{soft - votes:.1f}"
    assert told == f"{votes:.1f} +{by} −{by} 77,760 400.0 {{x}} {{}}"


def test_a_figure_is_of_the_seeds_that_its_cells_share(found: list[Results]) -> None:
    both = {cell.name: cell for cell in found[0].cells}
    cells: list[CellResults] = [both["tally"], both["fedmd"].of_seeds([1])]
    results = [Results("x", "x", cells)]
    [one] = [cell.metric("tail", 1) for cell in cells[:1]]
    assert one is not None
    other = tail(results[0], "fedmd")
    assert fill_in("{x: fedmd.tail - tally.tail}", results, "here") == f"+{other - one.mean:.1f}"
    assert fill_in("{x: tally.tail}", results, "here") == f"{tail(results[0], 'tally'):.1f}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{bridge: tally.tail}", "{bridge: tally.tail}: accepted is an experiment of this report: hybrid-small"),
        ("{hybrid-small: local.tail}", "unknown cell 'local'; known cells: tally, fedmd"),
        ("{hybrid-small: tally.tall}", "unknown metric 'tall' of tally"),
        ("{hybrid-small: tally.wire}", "the runs have no wire of tally"),
        ("{hybrid-small: tally.tail > 1}", "accepted are CELL.METRIC, numbers"),
        ("{hybrid-small: tally.}", "cannot be read"),
        ("{hybrid-small: " + "1 + " * 300 + "1}", "at most 1000 characters"),
        ("Words\n\n```\ncode\n```", "line 3: accepted are headings, paragraphs, bullets with - and tables"),
        ("## Heading\nand more", "line 1: accepted are headings"),
        ("Words\n- a bullet", "line 1: accepted are"),
        ("\n\n- a bullet\nwithout its indent", "line 3: accepted are"),
        ("| a | b |\n| --- | --- |\n| 1 |", "line 1: accepted are"),
        ("1. numbered", "line 1: accepted are"),
    ],
)
def test_what_cannot_be_shown_is_one_line(text: str, message: str, found: list[Results], tmp_path: Path) -> None:
    path = tmp_path / "opening.md"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_opening(path, found)
    assert str(caught.value).startswith(f"--opening {path}")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--opening .*nowhere\.md: No such file or directory; accepted is"):
        read_opening(tmp_path / "nowhere.md", [])
    (tmp_path / "bytes.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"bytes\.md: is not text; accepted is a Markdown file"):
        read_opening(tmp_path / "bytes.md", [])


def test_the_blocks_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "opening.md"
    path.write_text(
        "## When?\n\nOften,\nand `always`.\n\n- one\n  more\n- two\n\n| a | b |\n| --- | ---: |\n| x \\| y | 2 |\n"
        "\n| p | q |\n| --- | --- |\n| r | s |\n"
    )
    assert read_opening(path, []) == [
        Heading(2, "When?"),
        Text("Often, and `always`."),
        Bullets(["one more", "two"]),
        Table(["a", "b"], [["x | y", "2"]]),
        Table(["p", "q"], [["r", "s"]], words=True),
    ]


words = st.text("abc ,.", min_size=1, max_size=30).map(lambda text: " ".join(text.split())).filter(bool)
pairs = st.lists(words, min_size=2, max_size=2)
blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(Heading, st.integers(1, 6), words),
    st.builds(Text, words),
    st.builds(Bullets, st.lists(words, min_size=1, max_size=4)),
    st.builds(Table, pairs, st.lists(pairs, max_size=3), st.booleans()),
)


@given(st.lists(blocks, min_size=1, max_size=6))
def test_what_a_report_writes_is_read_back(written: list[Block]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "opening.md"
        path.write_text(as_markdown(written))
        assert read_opening(path, []) == written


def test_a_report_begins_with_it_and_keeps_it_when_written_again(hybrid: Path, tmp_path: Path) -> None:
    opening = tmp_path / "opening.md"
    opening.write_text("## In short\n\nVotes reach {hybrid-small: tally.tail} %: see [here](here.md).\n")
    tally = tail(collect([hybrid])[0], "tally")
    for name, wanted in (
        ("report.md", f"\n\n## In short\n\nVotes reach {tally:.1f} %: see [here](here.md).\n\n"),
        (
            "report.html",
            f'<h2 id="in-short">In short</h2>\n<p>Votes reach {tally:.1f} %: see <a href="here.md">here</a>.</p>',
        ),
    ):
        out = tmp_path / name
        write_report([hybrid], out, opening=opening)
        first = out.read_text()
        assert wanted in first
        assert first.index("In short") < first.index("How this page was made") < first.index("What was found")
        write_report([hybrid], out, opening=opening)
        assert out.read_text() == first
