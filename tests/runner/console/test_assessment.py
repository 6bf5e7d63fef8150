"""What is shown of a trained model: the whole table of few classes, the commonest mistakes of many."""

import numpy as np
import pytest

from p2p_tally.learning.saved.predict import Assessment
from p2p_tally.runner.console.assessment import print_assessment


def shown(
    confusion: np.ndarray | None, capsys: pytest.CaptureFixture[str], *, is_text: bool = False
) -> list[list[str]]:
    """The cells of each line, or the line where it is no row of a table."""
    print_assessment(Assessment(8, 62.5, 0.5, confusion), confusion, "m on d", is_text)
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in capsys.readouterr().out.splitlines()]


def test_every_class_has_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(np.array([[3, 1, 0], [0, 2, 2], [0, 0, 0]]), capsys)
    assert ["0", "3", "1", "·", "75.0"] in lines
    assert ["1", "·", "2", "2", "50.0"] in lines
    assert ["2", "·", "·", "·", "–"] in lines
    assert lines[-1] == ["accuracy 62.5 % of 8 examples, loss 0.5000"]


def test_of_many_classes_the_commonest_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    confusion = np.diag(np.full(40, 9))
    confusion[7, 3], confusion[5, 39] = 4, 6
    lines = shown(confusion, capsys)
    assert lines.index(["5", "39", "6", "15"]) + 1 == lines.index(["7", "3", "4", "13"])
    assert not any(line[2:3] == ["0"] for line in lines)


def test_of_text_the_perplexity(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(None, capsys, is_text=True) == [["accuracy 62.5 % of 8 positions, loss 0.5000, perplexity 1.65"]]
