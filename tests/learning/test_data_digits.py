"""The default data: scikit-learn's digits, split as in the paper, every image once, labels beside their images."""

import pytest
import torch
from sklearn.datasets import load_digits

from p2p_tally.errors import ConfigError
from p2p_tally.learning.data import DataOptions, every_index, load

torch.set_num_threads(1)


def test_sizes_are_those_of_the_figures() -> None:
    source = load("digits", DataOptions())
    assert source.test is not None
    assert (len(source.train), len(source.test), source.holdout) == (1797 - 400, 400, 200)
    assert (source.classes, source.input_shape, source.default_model) == (10, (64,), "mlp")
    x, y = source.train.take(torch.tensor([3, 0]))
    assert (x.dtype, tuple(x.shape)) == (torch.float32, (2, 64))
    assert y is not None and y.dtype == torch.int64


def test_every_image_once_with_its_own_label() -> None:
    source = load("digits", DataOptions(seed=3))
    assert source.test is not None
    parts = [part.take(every_index(part)) for part in (source.train, source.test)]
    x = torch.cat([part[0] for part in parts])
    y = torch.cat([part[1] for part in parts])
    pixels = (x * 6.0168 + 4.8842).round().int().tolist()
    found = sorted((*row, label) for row, label in zip(pixels, y.tolist(), strict=True))
    images, labels = load_digits(return_X_y=True)
    expected = sorted((*row, label) for row, label in zip(images.astype(int).tolist(), labels.tolist(), strict=True))
    assert found == expected


def test_pixels_are_standardised() -> None:
    source = load("digits", DataOptions())
    assert source.test is not None
    x = torch.cat([part.take(every_index(part))[0] for part in (source.train, source.test)])
    assert float(x.mean()) == pytest.approx(0, abs=1e-4)
    assert float(x.std()) == pytest.approx(1, abs=1e-4)


def test_the_split_follows_the_seed() -> None:
    def test_set(seed: int) -> torch.Tensor:
        source = load("digits", DataOptions(seed))
        assert source.test is not None
        return source.test.take(every_index(source.test))[0]

    assert torch.equal(test_set(1), test_set(1))
    assert not torch.equal(test_set(1), test_set(2))


@pytest.mark.parametrize(("options", "flag"), [(DataOptions(), "--data"), (DataOptions(for_probes=True), "--probes")])
def test_an_argument_is_refused_in_one_line(options: DataOptions, flag: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{flag} digits:7: [^\n]*$"):
        load("digits:7", options, flag=flag)
