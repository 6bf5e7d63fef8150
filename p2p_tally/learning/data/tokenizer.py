"""The byte-pair tokenizer: trained on one text, applied to others. Knows no cache and no windows."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from p2p_tally.errors import ConfigError, DataError
from p2p_tally.learning.data.tokens import token_type

# Lines encoded at a time: enough to keep all cores busy, few enough to hold.
LINES_AT_ONCE = 10_000

# Characters; a longer line (a text without line breaks, say) is cut.
LONGEST_LINE = 1 << 16


class Tokenizer:
    """Text <-> token numbers. All 256 bytes are tokens, so there is no text it cannot write."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @classmethod
    def train(cls, text: str, vocabulary: int, source: str) -> "Tokenizer":
        """The tokenizer of `vocabulary` tokens that the text's commonest pairs make. Every run makes the same one."""
        library = _library(source)
        inner = library.Tokenizer(library.models.BPE())
        inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary,
            initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        inner.train_from_iterator(_lines(text), trainer)
        if inner.get_vocab_size() < vocabulary:
            raise DataError(
                f"--vocabulary {vocabulary}: {source} supports at most {inner.get_vocab_size()} tokens; "
                "take a smaller vocabulary or a longer text"
            )
        return cls(inner)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        return cls(_library(str(path)).Tokenizer.from_file(str(path)))

    @classmethod
    def parse(cls, text: str, source: str) -> "Tokenizer":
        """From its own JSON, which may be anybody's. `source`: where it is from, for messages."""
        library = _library(source)
        try:
            return cls(library.Tokenizer.from_str(text))
        except Exception as error:  # the library raises no class of its own
            raise DataError(f"{source}: its tokenizer cannot be read ({' '.join(str(error).split())[:200]})") from None

    def save(self, path: Path) -> None:
        self._inner.save(str(path))

    def encode(self, text: str) -> np.ndarray:
        lines = _lines(text)
        kind = token_type(len(self))
        parts = [np.empty(0, kind)]
        while some := list(islice(lines, LINES_AT_ONCE)):
            parts += [np.array(line.ids, kind) for line in self._inner.encode_batch_fast(some)]
        return np.concatenate(parts)  # [n]

    def decode(self, tokens: np.ndarray) -> str:
        return str(self._inner.decode(tokens.tolist()))

    def __len__(self) -> int:
        return int(self._inner.get_vocab_size())


def _library(source: str) -> Any:
    try:
        import tokenizers  # noqa: PLC0415 - an extra that only text needs
    except ModuleNotFoundError:
        raise ConfigError(
            f"{source}: needs the package tokenizers; install it with: pip install 'p2p-tally[text]'"
        ) from None
    return tokenizers


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), LONGEST_LINE):
            yield line[start : start + LONGEST_LINE]
