"""A file of features: the source npz: reads it, and its extractor comes back as it was."""

from pathlib import Path

import numpy as np
import pytest
import torch

from p2p_tally.errors import DataError
from p2p_tally.learning.data import Arrays, DataOptions, load
from p2p_tally.learning.features.extractor import Extractor
from p2p_tally.learning.features.file import read_extractor, write_extractor, write_features
from p2p_tally.learning.features.learn import Recipe, learn
from p2p_tally.learning.features.parts import Parts


@pytest.fixture(scope="module")
def learned() -> tuple[Extractor, torch.Tensor]:
    pixels = torch.randint(256, (40, 3, 10, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    return learn(Arrays(pixels, None), Recipe(centroids=6, dimensions=5, patch=4), Parts())


def test_what_is_written_is_a_task_and_an_extractor(tmp_path: Path, learned: tuple[Extractor, torch.Tensor]) -> None:
    extractor, x = learned
    y = torch.arange(len(x)) % 4
    path = tmp_path / "F.npz"
    write_features(path, {"x_train": x, "y_train": y, "x_test": x[:9], "y_test": y[:9]}, extractor)
    source = load(f"npz:{path}", DataOptions())
    assert (source.classes, source.input_shape, source.default_model) == (4, (5,), "mlp")
    assert torch.equal(source.train.take(torch.arange(40))[0], x)
    again = read_extractor(path, "--like F")
    assert again.digest() == extractor.digest()
    assert again.dictionary.side == 4
    assert [file.name for file in tmp_path.iterdir()] == ["F.npz"]


@pytest.mark.parametrize("missing", ["image", "whitening", "centre", "centroids", "projection", "offset"])
def test_a_file_with_half_an_extractor_is_refused(
    tmp_path: Path, learned: tuple[Extractor, torch.Tensor], missing: str
) -> None:
    write_extractor(tmp_path / "whole.npz", learned[0])
    arrays = dict(np.load(tmp_path / "whole.npz"))
    np.savez(tmp_path / "half.npz", **{name: array for name, array in arrays.items() if missing not in name})
    with pytest.raises(DataError, match=f"--like F: its extractor is damaged .*{missing}"):
        read_extractor(tmp_path / "half.npz", "--like F")
    cut = {name: array[:-1] if missing in name else array for name, array in arrays.items()}
    np.savez(tmp_path / "cut.npz", **cut)
    with pytest.raises(DataError, match="--like F: its extractor is damaged"):
        read_extractor(tmp_path / "cut.npz", "--like F")


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", x=np.zeros(3))
    (tmp_path / "text.npz").write_text("no archive", encoding="utf-8")
    for name, message in {
        "plain.npz": "holds no extractor; accepted is a file that `p2p-tally features` wrote",
        "text.npz": "not an .npz file",
        "absent.npz": "No such file",
    }.items():
        with pytest.raises(DataError, match=f"--like F: {message}"):
            read_extractor(tmp_path / name, "--like F")
