"""scikit-learn's digits: 1,797 images of 8 x 8, in its wheel. The default: it tells the story in seconds."""

import torch

from p2p_tally.errors import ConfigError
from p2p_tally.ids import derive_seed
from p2p_tally.learning.data import Arrays, DataOptions, Source

TEST = 400
PROBES = 200

# Mean and standard deviation of all pixels, which run from 0 to 16.
MEAN, STD = 4.8842, 6.0168


def load(argument: str, options: DataOptions) -> Source:
    from sklearn.datasets import load_digits  # noqa: PLC0415 - scikit-learn takes a second to import

    if argument:
        raise ConfigError(f"{options.flag} digits:{argument}: digits takes no argument")
    x, y = load_digits(return_X_y=True)
    everything = Arrays(torch.tensor((x - MEAN) / STD, dtype=torch.float32), torch.tensor(y, dtype=torch.int64))
    generator = torch.Generator().manual_seed(derive_seed(options.seed, "digits", "split"))
    order = torch.randperm(len(everything), generator=generator)
    return Source(
        train=everything.subset(order[TEST:]),
        test=everything.subset(order[:TEST]),
        classes=10,
        input_shape=(64,),
        holdout=PROBES,
    )


SOURCES = {"digits": load}
