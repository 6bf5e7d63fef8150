"""scikit-learn's digits: 1,797 images of 8 x 8, in its wheel. The default data: a run takes seconds."""

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from p2p_tally.errors import ConfigError, DataError
from p2p_tally.ids import derive_seed
from p2p_tally.learning.data import Arrays, DataOptions, Source

TEST = 400
PROBES = 200

# Mean and standard deviation of all pixels, which run from 0 to 16.
MEAN, STD = 4.8842, 6.0168


def load(argument: str, options: DataOptions) -> Source:
    if argument:
        raise ConfigError(f"{options.flag} digits:{argument}: digits takes no argument")
    table = _table()  # [1797, 65]: pixels, then the digit
    everything = Arrays(
        torch.tensor((table[:, :-1] - MEAN) / STD, dtype=torch.float32), torch.tensor(table[:, -1], dtype=torch.int64)
    )
    generator = torch.Generator().manual_seed(derive_seed(options.seed, "digits", "split"))
    order = torch.randperm(len(everything), generator=generator)
    return Source(
        train=everything.subset(order[TEST:]),
        test=everything.subset(order[:TEST]),
        classes=10,
        input_shape=(64,),
        holdout=PROBES,
    )


def _table() -> np.ndarray:
    """The table in scikit-learn's wheel, read without importing it: that takes a second and 70 MB in every daemon."""
    found = find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise DataError("--data digits: scikit-learn, whose wheel holds it, is not installed")
    path = Path(found.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as file:
        table: np.ndarray = np.loadtxt(file, delimiter=",")
    return table


SOURCES = {"digits": load}
