"""Probes as pictures or text, for the page."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from p2p_tally.page.votes import SHOWN, text_view, view_of

# Tokens as text.
Decode = Callable[[Sequence[int]], str]


def probe_views(inputs: Tensor, probes_each: int, decode: Decode | None = None) -> list[dict[str, Any] | None]:
    """What the first probes among these inputs [B, ...] look like. Of a text each probe is a position: what stands
    before it is shown."""
    if probes_each == 1:
        return [view_of(example.cpu().numpy()) for example in inputs[:SHOWN]]
    tokens = inputs[0].tolist()
    return [text_view(_text(tokens[: place + 1], decode)) for place in range(min(SHOWN, probes_each))]


def _text(tokens: list[int], decode: Decode | None) -> str:
    return decode(tokens) if decode is not None else " ".join(map(str, tokens))
