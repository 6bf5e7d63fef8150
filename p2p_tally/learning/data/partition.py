"""How private data is cut into one shard a node: `dirichlet:A`, `iid`, `shards:K`, `chunks`. No shard is ever empty.

`resample:K` is no cut: every node draws its own K examples from all of them, so that a small data set can serve
thousands of simulated peers. Peers then share examples, and each holds some twice.
"""

import logging

import numpy as np
import torch
from torch import Tensor

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError, DataError
from p2p_tally.ids import derive_seed
from p2p_tally.learning.data import Examples

log = logging.getLogger(__name__)

# A draw that leaves a peer without examples is repeated, at most this often; then an error asks for other options.
DRAWS = 100


# How private data is cut unless the operator says otherwise, and what takes its place where that is not possible.
DEFAULT = str(Federation.model_fields["partition"].default)
TEXT_DEFAULT = "chunks"
CROWD_DEFAULT = "resample:40"


def cut(examples: Examples, how: str, nodes: int, seed: int) -> tuple[list[Examples], str]:
    """One shard for each node, and how they were cut: the default gives way to what the data allows, and says so."""
    if how == DEFAULT and examples.labels is None:
        how = TEXT_DEFAULT
        log.info("--partition %s: this data has no label an example; taken is %s", DEFAULT, how)
    try:
        return partition(examples, how, nodes, seed), how
    except DataError:
        if how != DEFAULT:
            raise
    log.warning(
        "--partition %s: %d private examples are too few for %d peers; taken is %s: each peer draws its own from all",
        how,
        len(examples),
        nodes,
        CROWD_DEFAULT,
    )
    return partition(examples, CROWD_DEFAULT, nodes, seed), CROWD_DEFAULT


def partition(examples: Examples, how: str, nodes: int, seed: int) -> list[Examples]:
    """One shard for each node, by rank. Together they hold every example once, unless they are resampled."""
    name, _, argument = how.partition(":")
    if name == "resample":
        each = int(_number(how, argument, int))
        return [examples.subset(_indices(part)) for part in _resample(len(examples), each, nodes, seed)]
    if len(examples) < nodes:
        raise DataError(f"--nodes {nodes}: only {len(examples)} private examples, so some peer would have none")
    generator = np.random.Generator(np.random.PCG64(derive_seed(seed, "partition")))
    if name == "iid" and not argument:
        order = generator.permutation(len(examples))
        return [examples.subset(_indices(part)) for part in np.array_split(order, nodes)]
    if name == "chunks" and not argument:
        # Neighbouring windows of a text overlap, so two shards share the tokens of one window where they meet.
        return [examples.subset(_indices(part)) for part in np.array_split(np.arange(len(examples)), nodes)]
    if name not in ("dirichlet", "shards"):
        raise ConfigError(f"--partition {how}: accepted is dirichlet:A, iid, shards:K, chunks or resample:K")
    labels = examples.labels
    if labels is None:
        raise DataError(f"--partition {how}: needs one label an example; accepted for this data is chunks or iid")
    if name == "dirichlet":
        parts = _dirichlet(labels.numpy(), _number(how, argument, float), nodes, generator, how)
    else:
        parts = _shards(labels.numpy(), int(_number(how, argument, int)), nodes, generator, how)
    return [examples.subset(_indices(part)) for part in parts]


def _number(how: str, argument: str, kind: type[int] | type[float]) -> float:
    try:
        value = kind(argument)
    except ValueError:
        value = kind(0)
    if not 0 < value < (2**31 if kind is int else float("inf")):
        accepted = "a positive whole number below 2^31" if kind is int else "a positive number"
        raise ConfigError(f"--partition {how}: accepted after the colon is {accepted}")
    return value


def _indices(part: np.ndarray) -> Tensor:
    return torch.from_numpy(np.sort(part).astype(np.int64))


def _resample(count: int, each: int, nodes: int, seed: int) -> list[np.ndarray]:
    """K draws with replacement for each node, from a stream of its own, so that more nodes change no shard."""
    return [
        np.random.Generator(np.random.PCG64(derive_seed(seed, "resample", rank))).integers(count, size=each)
        for rank in range(nodes)
    ]


def _dirichlet(
    labels: np.ndarray, concentration: float, nodes: int, generator: np.random.Generator, how: str
) -> list[np.ndarray]:
    """Each class is dealt to the nodes in shares drawn from a symmetric Dirichlet distribution."""
    for _ in range(DRAWS):
        parts: list[list[np.ndarray]] = [[] for _ in range(nodes)]
        for label in np.unique(labels):
            members = generator.permutation(np.flatnonzero(labels == label))
            shares = generator.dirichlet(np.full(nodes, concentration))
            cuts = np.floor(np.cumsum(shares)[:-1] * len(members)).astype(int)
            for part, piece in zip(parts, np.split(members, cuts), strict=True):
                part.append(piece)
        shards = [np.concatenate(part) for part in parts]
        if all(len(shard) for shard in shards):
            return shards
    raise DataError(
        f"--partition {how}: {DRAWS} draws all left some of the {nodes} peers with no example; "
        "take a larger number after the colon, fewer nodes, or --partition iid"
    )


def _shards(labels: np.ndarray, each: int, nodes: int, generator: np.random.Generator, how: str) -> list[np.ndarray]:
    """Examples sorted by class and cut into nodes x K runs; every node is dealt K of them."""
    if len(labels) < nodes * each:
        raise DataError(
            f"--partition {how}: {nodes} nodes x {each} shards need as many private examples, there are {len(labels)}"
        )
    shuffled = generator.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    runs = np.array_split(by_class, nodes * each)
    deal = generator.permutation(nodes * each).reshape(nodes, each)
    return [np.concatenate([runs[run] for run in row]) for row in deal]
