"""From a federation's options to what its nodes learn from: shards, probes, test set, and a learner for each node."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from p2p_tally.config import MAX_CLASSES, Federation
from p2p_tally.errors import ConfigError, DataError
from p2p_tally.ids import NodeName, derive_seed, ranked_names
from p2p_tally.learning import models
from p2p_tally.learning.architectures import holders, of_rank, shown
from p2p_tally.learning.data import Arrays, Augment, DataOptions, Examples, Normalise, Source, load
from p2p_tally.learning.data.images import crop_and_flip
from p2p_tally.learning.data.partition import cut
from p2p_tally.learning.data.probes import ProbePool, overlap
from p2p_tally.learning.data.text import TextSource
from p2p_tally.learning.data.token_probes import tokenizer_of
from p2p_tally.learning.exposed import feature_width
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.methods import Sends, method_of
from p2p_tally.learning.own_methods import try_method
from p2p_tally.learning.saved.about import About
from p2p_tally.learning.schedule import begin_alike, resolve
from p2p_tally.learning.start import choose_trained, same_values, warm_start
from p2p_tally.learning.start_file import check_start_file, start_file
from p2p_tally.learning.voting.examiner import set_exams

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
    exams: list[Examples | None] = field(default_factory=list)  # of each node; none where --exam sets nothing apart
    normalise: Normalise | None = None
    augment: Augment | None = None
    tokenizer: Path | None = None  # of text


def prepare(federation: Federation, *, root: Path | None = None, download: bool = False) -> Task:
    """Load the data, hold the probes out, cut the shards, and fill in the federation's open defaults.

    `root` is the folder of named data sets; `download` fetches one that is not there.
    """
    options = DataOptions(
        federation.seed,
        root=root,
        download=download,
        vocabulary=federation.vocabulary,
        context=federation.context,
        tokenizer=tokenizer_of(federation.probes),
    )
    source = load(federation.data, options)
    if source.test is None:
        raise DataError(f"--data {federation.data}: has no test set")
    if source.classes > MAX_CLASSES:
        raise DataError(
            f"--data {federation.data}: {source.classes} classes; accepted is at most {MAX_CLASSES}: "
            "a vote is at most three bytes"
        )
    if federation.probes == "holdout":
        probes, private = _held_out(federation, source)
        normalise = source.normalise
    else:
        public = load(federation.probes, replace(options, for_probes=True, task=source), flag="--probes")
        # The task's own constants where it has any: the model must see probes and private data on the same scale.
        normalise = source.normalise or public.normalise
        _fits(federation, source, public, normalise)
        probes, private = _of_another_source(federation, source, public)
    test = _test_set(federation, source.test)
    cheap = len(test) <= CHEAP_TEST_SET
    federation = resolve(federation, labelled=probes.labelled, cheap_to_evaluate=cheap, classes=source.classes)
    check_start_file(federation)
    if method_of(federation).sends is Sends.TOP_K and federation.top_k > source.classes:
        raise ConfigError(f"--top-k {federation.top_k}: accepted is at most the {source.classes} classes of the data")
    seen_in_test = overlap(probes.examples, test)
    if seen_in_test:
        log.warning(
            "%d of %d probes are in the test set too: accuracies will flatter", seen_in_test, len(probes.examples)
        )
    try_method(federation, source.classes)
    whole, how = cut(private, federation.partition, federation.nodes, federation.seed)
    shards, exams = set_exams(federation, whole, probes.labelled)
    task = Task(
        federation=federation.model_copy(update={"partition": how}),
        classes=source.classes,
        input_shape=source.input_shape,
        default_model=source.default_model,
        shards=shards,
        probes=probes,
        test=test,
        exams=exams,
        normalise=normalise,
        augment=_augmentation(federation, source),
        tokenizer=source.tokenizer if isinstance(source, TextSource) else None,
    )
    features_of(task)  # refuses models that do not fit each other
    return task


def _held_out(federation: Federation, source: Source) -> tuple[ProbePool, Examples]:
    """Labelled probes set apart from the training data, and the private examples that remain."""
    if federation.anchor:
        raise ConfigError(
            f"--anchor {federation.anchor}: probes held out of the data are labelled as they are; "
            "accepted with --probes of another source"
        )
    count = federation.probe_count or source.holdout
    pool, private = _set_apart(federation, source, count, "--probe-count", "holdout")
    return ProbePool(pool, federation.probes_per_round, federation.seed, hidden=_hidden(federation)), private


def _hidden(federation: Federation) -> bool:
    return federation.probe_labels == "hidden"


def _test_set(federation: Federation, test: Examples) -> Examples:
    """All of the test set, or its first examples: a small machine would spend most of a run on evaluating them all."""
    count = federation.test_count
    if count is None:
        return test
    if count > len(test):
        raise ConfigError(f"--test-count {count}: accepted is at most the {len(test)} test examples")
    return test.subset(torch.arange(count))


def _of_another_source(federation: Federation, source: Source, public: Source) -> tuple[ProbePool, Examples]:
    """Probes from another source, preceded by --anchor examples of the task itself, and the private examples."""
    pool, count = public.train, federation.probe_count
    if public.test is not None and isinstance(pool, Arrays):
        pool = pool.without_labels()  # a whole data set: its labels are those of another task
    if count is not None:
        if count > len(pool):
            raise ConfigError(
                f"--probe-count {count}: accepted is at most the {len(pool)} probes of {federation.probes}"
            )
        pool = pool.subset(torch.arange(count))
    per_round, seed = federation.probes_per_round, federation.seed
    if not federation.anchor:
        return ProbePool(pool, per_round, seed, hidden=_hidden(federation)), source.train
    if _hidden(federation):
        raise ConfigError(f"--anchor {federation.anchor}: of no use with --probe-labels hidden; accepted is 0")
    anchor, private = _set_apart(federation, source, federation.anchor, "--anchor", "anchor")
    return ProbePool(pool, per_round, seed, anchor, federation.anchor_per_round), private


def _set_apart(
    federation: Federation, source: Source, count: int, flag: str, purpose: str
) -> tuple[Examples, Examples]:
    if count >= len(source.train):
        raise ConfigError(f"{flag} {count}: accepted is less than the {len(source.train)} training examples")
    return source.split(count, federation.seed, purpose)


def _fits(federation: Federation, source: Source, public: Source, normalise: Normalise | None) -> None:
    """Refuse probes of another source that the task's model cannot read, or with labels that are not the task's."""
    flag = f"--probes {federation.probes}"
    if public.input_shape != source.input_shape:
        raise DataError(f"{flag}: inputs of shape {public.input_shape}, but the data has {source.input_shape}")
    first = torch.zeros(1, dtype=torch.int64)
    stored = [examples.take(first)[0] for examples in (public.train, source.train)]
    kinds = [(normalise(x) if normalise else x).dtype for x in stored]
    if federation.anchor:  # both kinds are put into one batch before they are normalised
        kinds = [x.dtype for x in stored]
    if kinds[0] != kinds[1]:
        raise DataError(f"{flag}: inputs of type {kinds[0]}, but the data has {kinds[1]}")
    if public.test is None and public.classes > source.classes:
        raise DataError(
            f"{flag}: labels up to class {public.classes - 1}, "
            f"but the data has {source.classes} classes (0 to {source.classes - 1})"
        )


def _augmentation(federation: Federation, source: Source) -> Augment | None:
    if federation.augment == "auto":
        return source.augment
    if federation.augment == "none":
        return None
    if len(source.input_shape) != 3:
        raise ConfigError(
            f"--augment {federation.augment}: needs images [channels, height, width], but an input of "
            f"{federation.data} has shape {source.input_shape}"
        )
    return crop_and_flip


def initial_seed(federation: Federation, name: NodeName) -> int:
    """What a node's model draws its first parameters by."""
    return derive_seed(federation.seed, "initialisation", "all" if begin_alike(federation) else name)


def make_model(task: Task, name: NodeName, rank: int) -> nn.Module:
    """A node's model as it begins: its own initialisation, or the same for all; or the parameters of a file."""
    federation = of_rank(task.federation, rank)
    seed = initial_seed(federation, name)
    model = models.build(federation, task.default_model, task.input_shape, task.classes, seed)
    choose_trained(model, federation.train)
    path = start_file(federation, name)
    if path is not None:
        warm_start(model, path)
    return model


def make_second(task: Task, name: NodeName, rank: int) -> nn.Module | None:
    """The model that a node keeps beside its own, where the method's row says so; with a start of its own."""
    build = method_of(task.federation).second
    if build is None:
        return None
    federation = of_rank(task.federation, rank)
    chosen = build(federation)
    seed = derive_seed(initial_seed(task.federation, name), "second")
    try:
        model = models.build(of_rank(chosen, 0), task.default_model, task.input_shape, task.classes, seed)
    except ConfigError as error:  # one's own model has been built already
        raise ConfigError(str(error).replace("--model", "--mentor", 1)) from None
    if chosen.model == federation.model:
        choose_trained(model, federation.train)
    return model


def features_of(task: Task) -> int:
    """How many features the models have, where the method sends them; else 0. A ConfigError where they differ."""
    if not method_of(task.federation).sends.features:
        return 0
    names = ranked_names(task.federation.nodes)
    held = [ranks[0] for ranks in holders(task.federation).values()]
    widths = [feature_width(make_model(task, names[rank], rank)) for rank in held]
    if len(set(widths)) > 1:
        raise ConfigError(
            f"--model {task.federation.model}: the method {task.federation.method} averages features, and these models "
            f"have {', '.join(map(str, widths))} of them; accepted are models with the same number"
        )
    return widths[0]


def make_learner(task: Task, name: NodeName, rank: int, device: str, make: Callable[..., Learner] = Learner) -> Learner:
    """The learner of one node: its own initialisation, its own shard. `make`: another kind of learner."""
    model = make_model(task, name, rank)
    second = make_second(task, name, rank)
    _try_out(model, task, f"--model {shown(of_rank(task.federation, rank).model)}")
    if second is not None:
        _try_out(second, task, f"--mentor {task.federation.mentor}")
    return make(
        name,
        task.federation,
        model,
        task.classes,
        task.shards[rank],
        task.probes,
        task.test,
        device,
        normalise=task.normalise,
        augment=task.augment,
        about=about_model(task, rank),
        exam=task.exams[rank] if task.exams else None,
        second=second,
    )


def about_model(task: Task, rank: int) -> About:
    """What a file of this node's model says."""
    return About.of(
        of_rank(task.federation, rank),
        task.default_model,
        task.input_shape,
        task.classes,
        task.normalise,
        None if task.tokenizer is None else task.tokenizer.read_text(encoding="utf-8"),
    )


@torch.no_grad()
def _try_out(model: nn.Module, task: Task, flag: str) -> None:
    """Call the model once: one that cannot read this data is refused in one line before round 1."""
    x, _ = task.shards[0].take(torch.zeros(2, dtype=torch.int64))
    x = task.normalise(x) if task.normalise else x
    chosen = f"{flag}: on inputs {x.dtype} {tuple(x.shape[1:])} of {task.federation.data}"
    with torch.random.fork_rng(devices=[]):
        try:
            answer = model(x)
            before = {key: buffer.clone() for key, buffer in model.named_buffers()}
            model(x)  # a second time: a cache that the first call has filled may stay
        except Exception as error:
            raise ConfigError(f"{chosen} it fails: {' '.join(str(error).split())}") from error
    expected = (2 * task.test.probes_each, task.classes)
    if not isinstance(answer, Tensor):
        raise ConfigError(
            f"{chosen} it gives a {type(answer).__name__}; accepted are logits {expected} for two examples"
        )
    shape = tuple((answer.flatten(0, -2) if answer.ndim > 1 else answer).shape)
    if shape != expected:
        raise ConfigError(f"{chosen} it gives {shape} for two examples; accepted are logits {expected}")
    changed = [key for key, buffer in model.named_buffers() if not same_values(before.get(key), buffer)]
    if changed:
        raise ConfigError(
            f"{flag}: its buffer {changed[0]} changes while it trains, and no merge averages buffers; accepted "
            "are buffers that stay as they are, and BatchNorm"
        )


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
