"""Crops, flips and normalisation: what each image can become, from whose generator, and where the learner does it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import NodeName
from p2p_tally.learning.data import Arrays
from p2p_tally.learning.data.images import PADDING, PLACES, PerChannel, crop_and_flip
from p2p_tally.learning.data.probes import ProbePool
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.schedule import resolve
from p2p_tally.learning.setup import prepare

CONSTANTS = PerChannel((0.5, 0.4, 0.3), (0.25, 0.2, 0.1))


def pixels(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, shape, dtype=torch.uint8, generator=generator)


def variants(image: Tensor) -> list[Tensor]:
    """Everything that an image [C, H, W] may become."""
    padded = F.pad(image, (PADDING,) * 4)
    _, height, width = image.shape
    crops = [
        padded[:, down : down + height, right : right + width] for down in range(PLACES) for right in range(PLACES)
    ]
    return [variant for crop in crops for variant in (crop, crop.flip(2))]


@settings(deadline=None, max_examples=25)
@given(
    batch=st.integers(1, 5),
    channels=st.integers(1, 3),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    seed=st.integers(0, 2**40),
)
def test_each_image_becomes_a_crop_of_itself(batch: int, channels: int, height: int, width: int, seed: int) -> None:
    x = pixels(batch, channels, height, width, seed=seed)
    found = crop_and_flip(x, torch.Generator().manual_seed(seed))
    assert found.dtype == x.dtype and found.shape == x.shape
    for before, after in zip(x, found, strict=True):
        assert any(torch.equal(after, variant) for variant in variants(before))


def test_every_crop_and_both_directions_come_up_about_equally_often() -> None:
    image = pixels(1, 1, 12, 12)[0]
    drawn = crop_and_flip(image.expand(16_200, -1, -1, -1), torch.Generator().manual_seed(0))
    known = {variant.numpy().tobytes(): 0 for variant in variants(image)}
    for one in drawn:
        known[one.numpy().tobytes()] += 1
    assert len(known) == 2 * PLACES * PLACES
    assert min(known.values()) > 60 and max(known.values()) < 140  # a hundred each, give or take four deviations


def test_what_is_drawn_follows_from_the_generator() -> None:
    x = pixels(8, 3, 32, 32)
    first, again, other = (crop_and_flip(x, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_normalisation_is_the_formula_and_leaves_floats_alone() -> None:
    x = pixels(4, 3, 6, 5)
    mean, std = torch.tensor(CONSTANTS.mean)[:, None, None], torch.tensor(CONSTANTS.std)[:, None, None]
    torch.testing.assert_close(CONSTANTS(x), (x / 255 - mean) / std, rtol=1e-5, atol=1e-5)
    assert CONSTANTS(x).is_contiguous(memory_format=torch.channels_last)
    floats = torch.randn(2, 3, 5, 5)
    assert CONSTANTS(floats) is floats


# --- in the learner


class Watching(nn.Module):
    """A linear model that keeps what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3 * 8 * 8, 4)
        self.shown: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.shown.append(x.detach().clone())
        logits: Tensor = self.linear(x.flatten(1))
        return logits


def learner(seed: int = 0, augmented: bool = True) -> Learner:
    x, y = pixels(40, 3, 8, 8), torch.arange(40) % 4
    federation = resolve(Federation(batch=6, local_steps=3, probes_per_round=5, rounds=10, seed=seed), labelled=True)
    torch.manual_seed(7)
    return Learner(
        NodeName("node-0"),
        federation,
        Watching(),
        4,
        Arrays(x[:20], y[:20]),
        ProbePool(Arrays(x[20:30], y[20:30]), 5, seed),
        Arrays(x[30:], y[30:]),
        normalise=CONSTANTS,
        augment=crop_and_flip if augmented else None,
    )


def shown(peer: Learner) -> list[Tensor]:
    assert isinstance(peer.model, Watching)
    return peer.model.shown


def test_private_images_are_varied_and_public_ones_are_not() -> None:
    peer = learner()
    peer.train()
    stored = peer.private.take(torch.arange(20))[0]
    known = {CONSTANTS(variant[None]).numpy().tobytes() for image in stored for variant in variants(image)}
    unvaried = {row.numpy().tobytes() for row in CONSTANTS(stored)}
    seen = [row.numpy().tobytes() for batch in shown(peer) for row in batch]
    assert len(seen) == 3 * 6 and set(seen) <= known and not set(seen) <= unvaried

    shown(peer).clear()
    peer.vote(1)
    assert torch.equal(shown(peer)[0], CONSTANTS(peer.probes.sample(1)[0]))
    shown(peer).clear()
    peer.evaluate()
    assert torch.equal(torch.cat(shown(peer)), CONSTANTS(peer.test.take(torch.arange(10))[0]))


def test_a_resumed_learner_draws_the_same_crops() -> None:
    peer = learner()
    peer.train()
    state = peer.snapshot()
    peer.train()
    expected = peer.parameters.sha256()
    other = learner()
    other.restore(state)
    other.train()
    assert other.parameters.sha256() == expected


def test_without_augmentation_private_images_are_as_they_are_stored() -> None:
    plain = learner(augmented=False)
    plain.train()
    stored = {row.numpy().tobytes() for row in CONSTANTS(plain.private.take(torch.arange(20))[0])}
    assert {row.numpy().tobytes() for batch in shown(plain) for row in batch} <= stored


def test_the_operator_can_ask_for_it_or_against_it(tmp_path: Path) -> None:
    x, y = pixels(200, 3, 8, 8).numpy(), np.arange(200) % 4
    path = tmp_path / "own.npz"
    np.savez(path, x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])

    def augment(how: str, data: str = f"npz:{path}") -> object:
        return prepare(Federation.parse({"data": data, "augment": how, "nodes": 2, "partition": "iid"})).augment

    assert augment("auto") is None and augment("none") is None and augment("crop-flip") is crop_and_flip
    with pytest.raises(ConfigError, match=r"^--augment crop-flip: needs images"):
        augment("crop-flip", "digits")
    with pytest.raises(ConfigError, match=r"^--augment blur: accepted is auto, none or crop-flip"):
        augment("blur")
