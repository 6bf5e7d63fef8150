"""Probes as pictures or text, for the page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from p2p_tally.learning.data.tokenizer import Tokenizer
from p2p_tally.page.votes import SHOWN, text_view, view_of

# Tokens [n] as text.
Decode = Callable[[np.ndarray], str]


def decoder(tokenizer: Path | None) -> Decode | None:
    """What writes the tokens of a task as text; the file is read when it is first needed. None where there are none."""
    if tokenizer is None:
        return None
    read: list[Tokenizer] = []

    def decode(tokens: np.ndarray) -> str:
        if not read:
            read.append(Tokenizer.load(tokenizer))
        return read[0].decode(tokens)

    return decode


def probe_views(inputs: Tensor, probes_each: int, decode: Decode | None = None) -> list[dict[str, Any] | None]:
    """What the first probes among these inputs [B, ...] look like. Of a text each probe is a position: what stands
    before it is shown."""
    if probes_each == 1:
        return [view_of(example.cpu().numpy()) for example in inputs[:SHOWN]]
    tokens = inputs[0].cpu().numpy()  # [T]
    return [text_view(_text(tokens[: place + 1], decode)) for place in range(min(SHOWN, probes_each))]


def _text(tokens: np.ndarray, decode: Decode | None) -> str:
    return decode(tokens) if decode is not None else " ".join(map(str, tokens.tolist()))
