"""Probes of a text in one file, with the tokenizer that wrote them: windows [n, T + 1] of tokens, tokenizer (JSON).

Peers that hold different texts need one tokenizer, or their votes would name different words. Whoever has this file as
`--probes tokens:FILE` writes its own text with that tokenizer too, instead of training one.
"""

import io
import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from p2p_tally.errors import DataError
from p2p_tally.learning.data import DataOptions, Examples, Source, every_index
from p2p_tally.learning.data.files import mapped_archive
from p2p_tally.learning.data.text import TextSource
from p2p_tally.learning.data.tokens import TokenExamples, token_type

KIND = "tokens"


def token_probes(pool: Examples, tokenizer: Path, vocabulary: int) -> bytes:
    """The contents of such a file."""
    x, y = pool.take(every_index(pool))
    assert y is not None, "a text is its own label"
    windows = torch.cat([x, y[:, -1:]], 1).numpy().astype(token_type(vocabulary))
    buffer = io.BytesIO()
    np.savez(buffer, windows=windows, tokenizer=np.frombuffer(tokenizer.read_bytes(), np.uint8))
    return buffer.getvalue()


def tokenizer_of(probes: object) -> str | None:
    """The tokenizer in the file that --probes names, as its own JSON; None: probes of another kind."""
    kind, _, argument = str(probes).partition(":")
    if kind != KIND:
        return None
    try:
        return bytes(_read(argument)["tokenizer"]).decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"--probes {probes}: its tokenizer is no UTF-8 text") from None


def load(argument: str, options: DataOptions) -> Source:
    spec, task = f"{options.flag} {KIND}:{argument}", options.task
    if not options.for_probes:
        raise DataError(f"{spec}: a file of probes; accepted is --probes {KIND}:FILE")
    if not isinstance(task, TextSource):
        raise DataError(f"{spec}: probes of a text; accepted with --data wikitext2 or text:FILE")
    windows = _read(argument)["windows"]
    if windows.ndim != 2 or not len(windows) or windows.dtype not in (np.uint16, np.uint32):
        raise DataError(f"{spec}: windows are {windows.dtype} {windows.shape}; accepted are tokens [windows, T + 1]")
    length = windows.shape[1]
    if length - 1 != options.context:
        raise DataError(f"{spec}: windows of {length - 1} tokens; --context is {options.context}")
    if int(windows.max()) >= task.classes:
        raise DataError(f"{spec}: token {int(windows.max())}; the vocabulary has {task.classes}")
    pool = TokenExamples(windows.reshape(-1), options.context, length, len(windows))
    return Source(pool, None, task.classes, task.input_shape, holdout=len(pool))


def _read(argument: str) -> dict[str, np.ndarray]:
    flag = f"--probes {KIND}:{argument}"
    try:
        arrays = mapped_archive(Path(argument))
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise DataError(f"{flag}: {error.strerror}") from None
    except (ValueError, BadZipFile, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{flag}: not an .npz file of plain arrays ({error})") from None
    for name in ("windows", "tokenizer"):
        if name not in arrays:
            raise DataError(f"{flag}: has no array {name!r}; found {', '.join(sorted(arrays)) or 'none'}")
    return arrays


SOURCES = {"tokens:FILE": load}
