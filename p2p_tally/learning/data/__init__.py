"""Data: what examples are, and where they come from.

A source is a module of this folder with a table SOURCES of name -> function(argument, DataOptions) -> Source.
Adding one is adding a file. Partitions and probes build on `Examples` and know no source.
"""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from p2p_tally.errors import ConfigError, DataError
from p2p_tally.ids import derive_seed
from p2p_tally.own_objects import call_own, import_object, module_exists


class Examples(Protocol):
    """Inputs, and labels where there are any, taken by index. An input may carry several probes (token positions)."""

    def __len__(self) -> int: ...

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor | None]:
        """Inputs [B, ...] and labels [B] (or [B, T]) for integer indices [B]."""
        ...

    def subset(self, indices: Tensor) -> "Examples":
        """The same storage seen through fewer indices."""
        ...

    @property
    def labels(self) -> Tensor | None:
        """All labels, where an example has exactly one; None otherwise."""
        ...

    @property
    def probes_each(self) -> int:
        """Predictions an example asks for: 1, or the positions of a sequence."""
        ...


@dataclass(frozen=True)
class Arrays:
    """Examples in two tensors that every subset shares."""

    x: Tensor
    y: Tensor | None
    index: Tensor | None = None  # None: all of them

    def __len__(self) -> int:
        return len(self.x if self.index is None else self.index)

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor | None]:
        if self.index is not None:
            indices = self.index.index_select(0, indices)
        return self.x.index_select(0, indices), None if self.y is None else self.y.index_select(0, indices)

    def subset(self, indices: Tensor) -> "Arrays":
        return Arrays(self.x, self.y, indices if self.index is None else self.index[indices])

    def without_labels(self) -> "Arrays":
        return Arrays(self.x, None, self.index)

    @property
    def labels(self) -> Tensor | None:
        return self.y if self.y is None or self.index is None else self.y[self.index]

    @property
    def probes_each(self) -> int:
        return 1


# Stored inputs [B, ...] -> inputs as the model wants them. Inputs that already are so pass unchanged.
Normalise = Callable[[Tensor], Tensor]

# (batch of stored private inputs, CPU generator to draw from) -> the batch, varied at random.
Augment = Callable[[Tensor, torch.Generator], Tensor]

# How many examples to set apart, and a seed -> those, and the rest.
HoldOut = Callable[[int, int], tuple[Examples, Examples]]


@dataclass(frozen=True, eq=False)
class Source:
    """What a source gives: training and test examples. A source of probes only has no test examples."""

    train: Examples
    test: Examples | None
    classes: int
    input_shape: tuple[int, ...]
    holdout: int  # training examples that become the probe pool, unless --probe-count says otherwise
    default_model: str = "mlp"
    normalise: Normalise | None = None  # None: inputs are stored as the model wants them
    augment: Augment | None = None  # None: private inputs are used as they are
    hold_out: HoldOut | None = None  # None: at random

    def __str__(self) -> str:
        return f"Source({len(self.train)} examples, {self.classes} classes)"

    def split(self, count: int, seed: int, purpose: str) -> tuple[Examples, Examples]:
        """`count` training examples set apart for a purpose, and the rest; the same ones for the same seed."""
        if self.hold_out is not None:
            return self.hold_out(count, seed)
        generator = torch.Generator().manual_seed(derive_seed(seed, purpose))
        order = torch.randperm(len(self.train), generator=generator)
        return self.train.subset(order[:count]), self.train.subset(order[count:])


@dataclass(frozen=True)
class DataOptions:
    """What a source may need besides its argument."""

    seed: int = 0
    for_probes: bool = False  # the caller wants a probe pool: a source may give that instead of a task
    task: Source | None = None  # then: the task that the probes are for
    for_use: bool = False  # the caller has a trained model: inputs alone will do
    root: Path | None = None  # folder of the named data sets
    download: bool = False  # fetch a named data set that is not in that folder
    vocabulary: int = 2048  # text: tokens that the tokenizer knows
    context: int = 256  # text: tokens in a window
    tokenizer: str | None = None  # text: the tokenizer to use, as its own JSON; None: one is trained on the text

    @property
    def flag(self) -> str:
        """The option that asked for the source, for messages."""
        return "--probes" if self.for_probes else "--data"

    def need_root(self, name: str) -> Path:
        if self.root is None:
            raise ConfigError(f"{self.flag} {name}: say which folder holds it with --data-root FOLDER")
        if not self.download and not self.root.is_dir():
            raise DataError(f"{self.flag} {name}: --data-root {self.root} is no folder")
        return self.root


Loader = Callable[[str, DataOptions], Source]


@cache
def _tables() -> dict[str, Loader]:
    """What the SOURCES tables of this folder's modules say: the name as users write it -> loader."""
    found: dict[str, Loader] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        found.update(getattr(module, "SOURCES", {}))
    return found


def source_names() -> list[str]:
    """The names as users write them: `digits`, `npz:FILE`."""
    return sorted(_tables())


def sources() -> dict[str, Loader]:
    """Name -> loader. The name is what stands before a colon."""
    return {name.partition(":")[0]: loader for name, loader in _tables().items()}


def load(spec: object, options: DataOptions, *, flag: str = "--data") -> Source:
    """The source that `spec` names or is: `name`, `name:argument`, the user's own `package.module:NAME`, a Source.

    NAME is a function that returns a Source, or a Source.
    """
    if not isinstance(spec, str):
        return _source(spec, f"{flag} {spec}", "accepted is a p2p_tally Source")
    name, _, argument = spec.partition(":")
    loader = sources().get(name)
    if loader is not None:
        return loader(argument, options)
    if argument and ("." in name or module_exists(name)):
        found = import_object(spec, flag)
        made = call_own(found, f"{flag} {spec}") if callable(found) else found
        return _source(made, f"{flag} {spec}", "the function must return a p2p_tally Source")
    accepted = ", ".join(source_names())
    raise ConfigError(f"{flag} {spec}: accepted is one of {accepted} or package.module:function")


def _source(made: object, what: str, otherwise: str) -> Source:
    """A user's own source, refused in one line where it is none, or its arrays do not fit what it says of them."""
    if not isinstance(made, Source):
        raise DataError(f"{what}: {otherwise}, not {type(made).__name__}")
    for name, examples in (("train", made.train), ("test", made.test)):
        if isinstance(examples, Arrays):
            _check_arrays(examples, f"{what}: {name}", made)
        elif examples is not None and not hasattr(examples, "take"):
            raise DataError(f"{what}: {name} is a {type(examples).__name__}; accepted is Arrays(x, y)")
    return made


def _check_arrays(arrays: Arrays, what: str, source: Source) -> None:
    x, y = arrays.x, arrays.y
    for name, value in (("x", x), ("y", y)):
        if not isinstance(value, Tensor) and not (name == "y" and value is None):
            raise DataError(
                f"{what}.{name} is a {type(value).__module__}.{type(value).__name__}; accepted is a torch.Tensor, "
                f"as torch.from_numpy({name}) makes of an array"
            )
    if x.shape[1:] != source.input_shape:
        raise DataError(f"{what}.x has examples of shape {tuple(x.shape[1:])}, input_shape says {source.input_shape}")
    if y is None:
        return
    if y.dtype != torch.int64 or y.shape != x.shape[:1]:
        accepted = f"torch.int64 ({len(x)},), a class an example"
        raise DataError(f"{what}.y is {y.dtype} {tuple(y.shape)}; accepted is {accepted}")
    low, high = (int(y.min()), int(y.max())) if len(y) else (0, 0)
    if low < 0 or (source.classes and high >= source.classes):
        raise DataError(f"{what}.y has classes {low} to {high}; accepted is 0 to {source.classes - 1}, as classes says")


def every_index(examples: Sequence[object] | Examples) -> Tensor:
    return torch.arange(len(examples))
