"""What a trained model is used on: the test set of a data source, arrays or a text in a file, image files."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from p2p_tally.errors import ConfigError, DataError
from p2p_tally.learning.data import Arrays, DataOptions, Examples, Normalise, load
from p2p_tally.learning.data.images import PerChannel
from p2p_tally.learning.data.text import CORPORA, read_text, test_windows
from p2p_tally.learning.data.tokenizer import Tokenizer
from p2p_tally.learning.saved.about import About
from p2p_tally.learning.saved.image_files import MODES, image_paths, read_images


@dataclass(frozen=True)
class Inputs:
    """Examples for a model, in one part or several of different shapes."""

    parts: Sequence[Examples]
    names: Sequence[str] = ()  # of the predictions, in order; empty: they have numbers
    normalise: Normalise | None = None  # the source's own
    tokenizer: Tokenizer | None = None  # of text


@dataclass(frozen=True)
class TokenRows(Arrays):
    """Windows of tokens whose last next token nobody knows: a prediction for every position, and no labels."""

    @property
    def probes_each(self) -> int:
        return int(self.x.shape[1])


@dataclass(frozen=True)
class Finder:
    """Finds inputs for one model. `root`, `download`: as for a run."""

    about: About
    root: Path | None = None
    download: bool = False

    @property
    def _options(self) -> DataOptions:
        return DataOptions(self.about.seed, for_use=True, root=self.root, download=self.download)

    def to_test(self, spec: str) -> Inputs:
        """Labelled examples: the test set of a source, as a run that names it has; or arrays x and y."""
        name, _, argument = spec.partition(":")
        if name in CORPORA:
            tokenizer, context = self._tokenizer(spec)
            corpus = CORPORA[name](argument, self._options)
            return Inputs([test_windows(corpus, tokenizer, context)], tokenizer=tokenizer)
        inputs = self._of_source(spec)
        for part in inputs.parts:
            self._check_labels(spec, part)
        return inputs

    def to_predict(self, specs: Sequence[str]) -> Inputs:
        """Examples with labels or without: as `to_test`, or the whole of a text, or image files and folders of them."""
        paths = [Path(spec) for spec in specs]
        if all(path.exists() for path in paths):
            return self._of_images(image_paths(paths))
        if len(specs) > 1:
            missing = next(spec for spec, path in zip(specs, paths, strict=True) if not path.exists())
            raise ConfigError(f"--data {missing}: no such file; accepted several times are image files and folders")
        name, _, argument = specs[0].partition(":")
        if name == "text" and argument:
            return self._of_text(specs[0], read_text(Path(argument)))
        return self.to_test(specs[0]) if name in CORPORA else self._of_source(specs[0])

    def _of_source(self, spec: str) -> Inputs:
        source = load(spec, self._options)
        if source.input_shape != self.about.input_shape:
            raise DataError(f"--data {spec}: inputs of shape {source.input_shape}; the model takes {self._takes}")
        return Inputs([source.train if source.test is None else source.test], normalise=source.normalise)

    def _check_labels(self, spec: str, examples: Examples) -> None:
        labels = examples.take(torch.arange(len(examples)))[1]
        if labels is None:
            raise DataError(f"--data {spec}: has no labels to compare with; accepted is a data set with labels")
        if int(labels.max()) >= self.about.classes:
            raise DataError(
                f"--data {spec}: labels up to class {int(labels.max())}; the model knows {self.about.classes} classes"
            )

    def _of_images(self, paths: list[Path]) -> Inputs:
        shape = self.about.input_shape
        if not isinstance(self.about.normalise, PerChannel) or len(shape) != 3 or shape[0] not in MODES:
            raise DataError(
                f"--data {paths[0]}: the model was not trained on pixels 0 to 255; accepted is a data source, or "
                f"npz:FILE with inputs {self._takes}"
            )
        return Inputs([Arrays(read_images(paths, shape), None)], [str(path) for path in paths])

    def _of_text(self, spec: str, text: str) -> Inputs:
        tokenizer, context = self._tokenizer(spec)
        tokens = torch.from_numpy(tokenizer.encode(text).astype("int64"))
        if not len(tokens):
            raise DataError(f"--data {spec}: is empty")
        full = len(tokens) // context * context
        rows: list[Tensor] = [tokens[:full].view(-1, context), tokens[full:].view(1, -1)]
        names = [tokenizer.decode(token.numpy()) for token in tokens.view(-1, 1)]
        return Inputs([TokenRows(x, None) for x in rows if x.numel()], names, tokenizer=tokenizer)

    def _tokenizer(self, spec: str) -> tuple[Tokenizer, int]:
        """The model's tokenizer, and how many tokens it sees at once."""
        text = self.about.tokenizer
        if text is None:
            raise DataError(f"--data {spec}: a text, and the model takes {self._takes}")
        tokenizer = Tokenizer.parse(text, "the model")
        if len(tokenizer) != self.about.classes or len(self.about.input_shape) != 1:
            raise DataError(f"the model has {self.about.classes} classes, and its tokenizer {len(tokenizer)} tokens")
        return tokenizer, self.about.input_shape[0]

    @property
    def _takes(self) -> str:
        return str(self.about.input_shape)


def first(inputs: Inputs, count: int | None) -> Inputs:
    """The same with the first examples only, as --test-count of a run has it."""
    if count is None:
        return inputs
    (part,) = inputs.parts
    if count > len(part):
        raise ConfigError(f"--test-count {count}: accepted is at most the {len(part)} test examples")
    return replace(inputs, parts=[part.subset(torch.arange(count))])
