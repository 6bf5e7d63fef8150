"""From a federation's description to what its nodes learn with: shards, probes, test set, and a learner for each."""

import logging
from dataclasses import dataclass

import torch

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError, DataError
from p2p_tally.ids import NodeName, derive_seed
from p2p_tally.learning import models
from p2p_tally.learning.data import Arrays, DataOptions, Examples, Source, load
from p2p_tally.learning.data.partition import partition
from p2p_tally.learning.data.probes import ProbePool, overlap
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.methods import METHODS, Sent
from p2p_tally.learning.schedule import resolve

log = logging.getLogger(__name__)

# Up to this many test examples an evaluation costs less than a round's training even for small models.
CHEAP_TEST_SET = 1024


@dataclass(frozen=True)
class Task:
    """What a federation learns: one private shard a node, the public probes, the common test set."""

    federation: Federation  # every default filled in
    classes: int
    input_shape: tuple[int, ...]
    default_model: str
    shards: list[Examples]
    probes: ProbePool
    test: Examples


def prepare(federation: Federation) -> Task:
    """Load the data, hold the probes out, cut the shards, and fill in the federation's open defaults."""
    source = load(federation.data, DataOptions(federation.seed))
    if source.test is None:
        raise DataError(f"--data {federation.data}: has no test set")
    pool, private = _probe_pool(federation, source)
    probes = ProbePool(pool, federation.probes_per_round, federation.seed)
    cheap = len(source.test) <= CHEAP_TEST_SET
    federation = resolve(federation, labelled=probes.labelled, cheap_to_evaluate=cheap)
    if METHODS[federation.method].sent is Sent.TOP_K and federation.top_k > source.classes:
        raise ConfigError(f"--top-k {federation.top_k}: accepted is at most the {source.classes} classes of the data")
    seen_in_test = overlap(pool, source.test)
    if seen_in_test:
        log.warning("%d of %d probes are in the test set too: accuracies will flatter", seen_in_test, len(pool))
    shards = partition(private, federation.partition, federation.nodes, federation.seed)
    return Task(federation, source.classes, source.input_shape, source.default_model, shards, probes, source.test)


def _probe_pool(federation: Federation, source: Source) -> tuple[Examples, Examples]:
    """The probes, and the private examples that remain."""
    count = federation.probe_count
    if federation.probes == "holdout":
        count = count or source.holdout
        if count >= len(source.train):
            raise ConfigError(f"--probe-count {count}: accepted is less than the {len(source.train)} training examples")
        generator = torch.Generator().manual_seed(derive_seed(federation.seed, "holdout"))
        order = torch.randperm(len(source.train), generator=generator)
        return source.train.subset(order[:count]), source.train.subset(order[count:])
    public = load(federation.probes, DataOptions(federation.seed, for_probes=True), flag="--probes")
    if public.input_shape != source.input_shape:
        raise DataError(
            f"--probes {federation.probes}: inputs of shape {public.input_shape}, but the data has {source.input_shape}"
        )
    pool = public.train
    if public.test is not None and isinstance(pool, Arrays):
        pool = pool.without_labels()  # a whole data set of its own: its labels are those of another task
    elif public.classes > source.classes:
        raise DataError(
            f"--probes {federation.probes}: labels up to class {public.classes - 1}, "
            f"but the data has {source.classes} classes (0 to {source.classes - 1})"
        )
    if count is not None:
        if count > len(pool):
            raise ConfigError(
                f"--probe-count {count}: accepted is at most the {len(pool)} probes of {federation.probes}"
            )
        pool = pool.subset(torch.arange(count))
    return pool, source.train


def make_learner(task: Task, name: NodeName, rank: int, device: str) -> Learner:
    """The learner of one node: its own initialisation, its own shard."""
    federation = task.federation
    whose = "all" if METHODS[federation.method].common_start else name
    seed = derive_seed(federation.seed, "initialisation", whose)
    model = models.build(federation, task.default_model, task.input_shape, task.classes, seed)
    return Learner(name, federation, model, task.classes, task.shards[rank], task.probes, task.test, device)


def pick_device(wanted: str) -> str:
    """`auto` is the first GPU where there is one."""
    if wanted == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    if wanted.startswith("cuda"):
        count = torch.cuda.device_count()
        index = int(wanted.partition(":")[2] or 0)
        if index >= count:
            raise ConfigError(f"--device {wanted}: this machine has {count} CUDA devices; accepted is auto or cpu")
    return wanted
