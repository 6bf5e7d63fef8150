"""Progress where there is no terminal: few lines, the last of each stage among them."""

import pytest

from p2p_tally.learning.features.progress import PLAIN_LINES, Display


def test_a_stage_writes_few_lines_and_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(live=True) as display:
        assert not display.used
        for stage in ("centroids", "training images"):
            for done in range(1, 501):
                display(stage, done, 500)
        assert display.used
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == "" and len(lines) == 2 * PLAIN_LINES
    assert lines[PLAIN_LINES - 1] == "features: centroids 100 %"
    assert lines[-1] == "features: training images 100 %"


def test_a_stage_of_one_part_writes_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Display(live=False)("test images", 1, 1)
    assert capsys.readouterr().err == "features: test images 100 %\n"


def test_the_end_of_a_stage_is_told_where_its_parts_are_uneven(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(live=False)
    for done in range(1, 26):  # of 25 parts the seventh is the first beyond a quarter
        display("main directions", done, 25)
    assert [line.split()[-2] for line in capsys.readouterr().err.splitlines()] == ["28", "56", "84", "100"]
