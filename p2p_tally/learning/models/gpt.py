"""TinyGPT: a causal transformer that predicts the next token at every position. 5,839,360 parameters for 2,048 tokens.

B sequences, T positions, D width, V tokens.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.architectures import size_flag

WIDTH = 256
DEPTH = 6  # blocks
HEADS = 8
EXPANSION = 4  # the hidden layer of a block is this many times as wide
SPREAD = 0.02  # standard deviation of initial parameters, GPT-2's


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.queries_keys_values = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.queries_keys_values(x).view(batch, length, 3, HEADS, width // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each [B, heads, T, D / heads]
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [B, heads, T, D / heads]
        mixed: Tensor = self.out(seen.transpose(1, 2).reshape(batch, length, width))  # [B, T, D]
        return mixed


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.attention = Attention(width)
        self.before_hidden = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, EXPANSION * width, bias=False)
        self.out = nn.Linear(EXPANSION * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x))
        hidden = F.gelu(self.hidden(self.before_hidden(x)))  # [B, T, 4 D]
        out: Tensor = x + self.out(hidden)  # [B, T, D]
        return out


class TinyGPT(nn.Module):
    """Learned positions; linear layers without bias, LayerNorm with; the output head has parameters of its own."""

    def __init__(self, vocabulary: int, context: int, width: int = WIDTH, depth: int = DEPTH) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=SPREAD)
        # Every block adds to the residual stream twice; scaled so, its spread at the end does not grow with depth.
        for name, parameter in self.named_parameters():
            if name.endswith("out.weight"):
                nn.init.normal_(parameter, std=SPREAD / (2 * depth) ** 0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)  # [T]
        x = self.tokens(tokens) + self.positions(positions)  # [B, T, D]
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.last(x))  # [B, T, V]
        return logits


def build(input_shape: tuple[int, ...], classes: int, federation: Federation) -> nn.Module:
    if len(input_shape) != 1:
        raise ConfigError(f"--model tinygpt: needs windows of tokens, not inputs of shape {input_shape}")
    width, depth = federation.width or WIDTH, federation.depth or DEPTH
    if width % HEADS:
        flag = size_flag(federation, f"--width {width}")
        raise ConfigError(f"{flag}: tinygpt has {HEADS} heads; accepted is a multiple of {HEADS}")
    return TinyGPT(classes, input_shape[0], width, depth)


MODELS = {"tinygpt": build}
