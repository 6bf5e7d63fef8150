"""The figure of a confusion table: numbers where they fit, and the same bytes every time."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from p2p_tally.errors import ConfigError
from p2p_tally.runner.report.confusion_figure import NUMBERED, confusion_figure


@pytest.mark.parametrize(("size", "numbers"), [(3, 3), (NUMBERED + 1, 0)])
def test_few_classes_have_their_numbers(
    size: int, numbers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    original = Axes.text

    def text(self: Axes, x: float, y: float, s: str, **more: object) -> object:
        written.append(s)
        return original(self, x, y, s, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Axes, "text", text)
    for name in ("a.svg", "b.svg"):
        confusion_figure(np.diag(np.arange(7, 7 + size)), "title", tmp_path / name)
    assert written == ["7", "8", "9"][:numbers] * 2
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_class_without_examples_and_another_suffix(tmp_path: Path) -> None:
    confusion_figure(np.array([[2, 1], [0, 0]]), "title", tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000
    with pytest.raises(ConfigError, match=r"^--plot a\.txt: accepted is a file that ends with \.svg, \.png, \.pdf$"):
        confusion_figure(np.eye(2), "title", Path("a.txt"))
