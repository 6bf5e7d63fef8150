"""Images seen in two ways, and models that see them in one of the two.

`python two_kinds.py cifar10.npz cifar10-features.npz two-kinds.npz` writes for each image its 256 frozen features (made
with `p2p-tally features cifar10 --out cifar10-features.npz`), and then the 256 largest principal components of its
pixels. All peers share these probes. The model of a peer looks at one half of them: `two_kinds:features` or
`two_kinds:pixels`.
"""

import sys
from pathlib import Path

import numpy as np
from torch import Tensor, nn

COLUMNS = 256  # of each kind


class Columns(nn.Module):
    """Some columns of its input."""

    def __init__(self, begin: int, end: int) -> None:
        super().__init__()
        self.begin, self.end = begin, end

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.begin : self.end]


def features(classes: int) -> nn.Module:
    return nn.Sequential(Columns(0, COLUMNS), nn.Linear(COLUMNS, 128), nn.ReLU(), nn.Linear(128, classes))


def pixels(classes: int) -> nn.Module:
    """A smaller model than the other: reports tell models apart by their size."""
    return nn.Sequential(Columns(COLUMNS, 2 * COLUMNS), nn.Linear(COLUMNS, 64), nn.ReLU(), nn.Linear(64, classes))


def components(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest principal components of the training images' pixels, each with variance 1."""
    flat, others = (images.reshape(len(images), -1).astype(np.float32) / 255 for images in (train, test))
    mean = flat.mean(0)
    values, vectors = np.linalg.eigh(np.cov((flat - mean).T))  # ascending
    basis = vectors[:, -COLUMNS:][:, ::-1] / np.sqrt(values[-COLUMNS:][::-1])
    return (flat - mean) @ basis, (others - mean) @ basis


def main(images_file: Path, features_file: Path, out: Path) -> None:
    images, embedded = np.load(images_file), np.load(features_file)
    if not np.array_equal(images["y_train"], embedded["y_train"]):
        sys.exit(f"{features_file}: its labels are not those of {images_file}")
    train, test = components(images["x_train"], images["x_test"])
    np.savez(
        out,
        x_train=np.hstack([embedded["x_train"], train]).astype(np.float32),
        x_test=np.hstack([embedded["x_test"], test]).astype(np.float32),
        y_train=images["y_train"],
        y_test=images["y_test"],
    )


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python two_kinds.py IMAGES.npz FEATURES.npz OUT.npz")
    main(*map(Path, sys.argv[1:]))
