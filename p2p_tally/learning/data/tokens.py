"""Examples of a language model: windows of a row of tokens. An example carries as many probes as it has positions."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from p2p_tally.errors import ConfigError


def token_type(vocabulary: int) -> type[np.unsignedinteger]:
    """The type that tokens are kept in: two bytes each where these name all of them, else four."""
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32


@dataclass(frozen=True)
class TokenExamples:
    """Windows of `context` tokens, and for each position the token that follows it. The tokens are shared, mapped."""

    tokens: np.ndarray  # [n], of token_type
    context: int
    stride: int  # from one window's first token to the next's; `context`: windows do not overlap
    count: int  # windows, from the first token on
    index: Tensor | None = None  # None: all of them

    def __len__(self) -> int:
        return self.count if self.index is None else len(self.index)

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor | None]:
        if self.index is not None:
            indices = self.index.index_select(0, indices)
        places = indices.numpy()[:, None] * self.stride + np.arange(self.context + 1)  # [B, T + 1]
        windows = torch.from_numpy(self.tokens[places].astype(np.int64))  # [B, T + 1]
        return windows[:, :-1], windows[:, 1:]

    def subset(self, indices: Tensor) -> "TokenExamples":
        index = indices if self.index is None else self.index[indices]
        return TokenExamples(self.tokens, self.context, self.stride, self.count, index)

    @property
    def labels(self) -> Tensor | None:
        return None

    @property
    def probes_each(self) -> int:
        return self.context


def every_window(tokens: np.ndarray, context: int) -> TokenExamples:
    """A window at each token that has enough others after it: what training draws from."""
    return TokenExamples(tokens, context, 1, max(0, len(tokens) - context))


def side_by_side(tokens: np.ndarray, context: int) -> TokenExamples:
    """Windows that do not overlap: each position is predicted once, and counts once as a probe or in a test."""
    return TokenExamples(tokens, context, context, max(0, (len(tokens) - 1) // context))


@dataclass(frozen=True)
class LastWindows:
    """Holds out the end of a text: no training window reaches into it."""

    tokens: np.ndarray  # [n]
    context: int

    def __call__(self, count: int, _seed: int) -> tuple[TokenExamples, TokenExamples]:
        most = (len(self.tokens) - self.context - 2) // self.context
        if count > most:
            raise ConfigError(
                f"--probe-count {count}: accepted is at most {most}: the training text has {len(self.tokens)} tokens, "
                f"a probe here is a window of {self.context}, and one window must remain private"
            )
        cut = len(self.tokens) - count * self.context - 1
        return side_by_side(self.tokens[cut:], self.context), every_window(self.tokens[:cut], self.context)
