"""Text as tokens: `wikitext2` from the folder --data-root, and `text:FILE` for any other.

The tokenizer is trained on the training split once. It and the tokens are kept under the digest of the text and the
vocabulary size, so a second start only maps them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from p2p_tally.config import MAX_CLASSES
from p2p_tally.errors import ConfigError, DataError
from p2p_tally.ids import digest
from p2p_tally.learning.data import DataOptions, Loader, Source, wikitext
from p2p_tally.learning.data.files import cached_folder, mapped
from p2p_tally.learning.data.tokenizer import Tokenizer
from p2p_tally.learning.data.tokens import LastWindows, TokenExamples, every_window, side_by_side

# The last tenth of a single file is the test set.
TEST_SHARE = 10

# The last twentieth of the training tokens are the probes, as in the paper.
HOLDOUT_SHARE = 20

# All single bytes are tokens.
LEAST_VOCABULARY = 256

# Changes when what the cache holds changes.
CACHE_FORMAT = b"tokens 1"


@dataclass(frozen=True)
class TextSource(Source):
    """A text, and the tokenizer that probes of another text must be written with."""

    tokenizer: Path = Path()


@dataclass(frozen=True)
class Corpus:
    """A training and a test text, and what to call them in messages."""

    spec: str  # as the operator wrote it, with the option's name
    home: Path  # the cache lives under this folder
    train: str
    test: str


def wikitext2_corpus(argument: str, options: DataOptions) -> Corpus:
    if argument:
        raise ConfigError(f"{options.flag} wikitext2:{argument}: wikitext2 takes no argument; see text:FILE")
    root = options.need_root("wikitext2")
    train, test = wikitext.find(root, options.download, f"{options.flag} wikitext2")
    return Corpus(f"{options.flag} wikitext2", root, read_text(train), read_text(test))


def file_corpus(argument: str, options: DataOptions) -> Corpus:
    if not argument:
        raise ConfigError(f"{options.flag} text: accepted is text:FILE")
    path = Path(argument)
    text = read_text(path)
    cut = len(text) - len(text) // TEST_SHARE
    return Corpus(f"{options.flag} text:{path}", options.root or path.parent, text[:cut], text[cut:])


def read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text: byte {error.start} is {error.object[error.start]:#x}") from None


def test_windows(corpus: Corpus, tokenizer: Tokenizer, context: int) -> TokenExamples:
    """The test text in the tokens of another text's tokenizer, in the windows in which a run is tested."""
    tokens = tokenizer.encode(corpus.test)
    _long_enough(len(tokens), "tokens", "test", corpus, context)
    return side_by_side(tokens, context)


def _loader(read: Callable[[str, DataOptions], Corpus]) -> Loader:
    def load(argument: str, options: DataOptions) -> Source:
        corpus = read(argument, options)
        return _probes(corpus, options) if options.for_probes else _task(corpus, options)

    return load


def _task(corpus: Corpus, options: DataOptions) -> TextSource:
    context, vocabulary = options.context, options.vocabulary
    if not LEAST_VOCABULARY <= vocabulary <= MAX_CLASSES:
        raise ConfigError(
            f"--vocabulary {vocabulary}: accepted is {LEAST_VOCABULARY} (every byte) to {MAX_CLASSES} (a vote is at "
            "most three bytes)"
        )
    for split, text in (("training", corpus.train), ("test", corpus.test)):
        # A token is at least a byte, so this is sure before anything is tokenised.
        _long_enough(len(text.encode()), "bytes", split, corpus, context)

    def build(folder: Path) -> None:
        tokenizer = _tokenizer(corpus, options)
        tokenizer.save(folder / "tokenizer.json")
        np.save(folder / "train.npy", tokenizer.encode(corpus.train))
        np.save(folder / "test.npy", tokenizer.encode(corpus.test))

    given = () if options.tokenizer is None else (options.tokenizer.encode(),)
    key = digest(CACHE_FORMAT, str(vocabulary).encode(), corpus.train.encode(), corpus.test.encode(), *given)
    folder = cached_folder(corpus.home, f"text-{key[:16]}", build)
    train, test = mapped(folder / "train.npy"), mapped(folder / "test.npy")
    _long_enough(len(test), "tokens", "test", corpus, context)
    # Besides the probes' window there is to be a private one; each has one more token, to predict.
    _long_enough(len(train) - context - 1, "tokens besides one window of probes", "training", corpus, context)
    return TextSource(
        train=every_window(train, context),
        test=side_by_side(test, context),
        classes=vocabulary,
        input_shape=(context,),
        holdout=max(1, (len(train) // HOLDOUT_SHARE - 1) // context),
        default_model="tinygpt",
        hold_out=LastWindows(train, context),
        tokenizer=folder / "tokenizer.json",
    )


def _tokenizer(corpus: Corpus, options: DataOptions) -> Tokenizer:
    if options.tokenizer is None:
        return Tokenizer.train(corpus.train, options.vocabulary, corpus.spec)
    given = Tokenizer.parse(options.tokenizer, "--probes")
    if len(given) != options.vocabulary:
        raise DataError(f"--vocabulary {options.vocabulary}: the tokenizer of the probes has {len(given)} tokens")
    return given


def _probes(corpus: Corpus, options: DataOptions) -> Source:
    """Another text as probes: its training split in the task's own tokens. A text is its own label."""
    task = options.task
    if not isinstance(task, TextSource):
        raise DataError(f"{corpus.spec}: a text can only be the probes of a text")
    tokenizer = task.tokenizer.read_bytes()

    def build(folder: Path) -> None:
        np.save(folder / "probes.npy", Tokenizer.load(task.tokenizer).encode(corpus.train))

    key = digest(CACHE_FORMAT, tokenizer, corpus.train.encode())
    tokens = mapped(cached_folder(corpus.home, f"probes-{key[:16]}", build) / "probes.npy")
    _long_enough(len(tokens), "tokens", "training", corpus, options.context)
    pool = side_by_side(tokens, options.context)
    return Source(pool, None, task.classes, task.input_shape, holdout=len(pool))


def _long_enough(length: int, unit: str, split: str, corpus: Corpus, context: int) -> None:
    if length <= context:
        raise DataError(
            f"{corpus.spec}: the {split} text has {max(0, length)} {unit}; --context {context} needs at least "
            f"{context + 1}: take a longer text or a smaller context"
        )


CORPORA = {"wikitext2": wikitext2_corpus, "text": file_corpus}

SOURCES = {"wikitext2": _loader(wikitext2_corpus), "text:FILE": _loader(file_corpus)}
