"""TinyGPT: counted, causal, and a model that learns to count."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from p2p_tally.config import MAX_CLASSES, Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.models import build
from p2p_tally.learning.models.gpt import TinyGPT


def small(vocabulary: int = 11, context: int = 8, depth: int = 2) -> nn.Module:
    return build(Federation(model="tinygpt", width=16, depth=depth), "", (context,), vocabulary, seed=0)


@pytest.mark.parametrize(
    ("vocabulary", "parameters"),
    [(2048, 5_839_360), (50_257, 5_839_360 + 2 * 256 * (50_257 - 2048))],  # embedding and head grow with it
)
def test_parameter_counts_are_the_papers(vocabulary: int, parameters: int) -> None:
    model = build(Federation(model="tinygpt"), "mlp", (256,), vocabulary, seed=0)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    tokens = torch.tensor([[0, vocabulary - 1]])
    with torch.no_grad():
        assert tuple(model(tokens).shape) == (1, 2, vocabulary)


def test_linear_layers_have_no_bias_and_norms_have_one() -> None:
    model = small()
    assert all(module.bias is None for module in model.modules() if isinstance(module, nn.Linear))
    assert all(module.bias is not None for module in model.modules() if isinstance(module, nn.LayerNorm))
    assert isinstance(model, TinyGPT)
    assert model.head.weight.data_ptr() != model.tokens.weight.data_ptr()


@settings(max_examples=20)
@given(tokens=st.lists(st.integers(0, 10), min_size=8, max_size=8), place=st.integers(0, 7), other=st.integers(0, 10))
def test_no_position_sees_what_comes_after_it(tokens: list[int], place: int, other: int) -> None:
    model = small()
    changed = tokens.copy()
    changed[place] = other
    with torch.no_grad():
        before, after = model(torch.tensor([tokens, changed]))  # [T, V] each
    torch.testing.assert_close(before[:place], after[:place], rtol=1e-4, atol=1e-5)
    if other != tokens[place]:
        assert not torch.allclose(before[place:], after[place:], rtol=1e-4, atol=1e-5)


def test_positions_matter_and_shorter_inputs_pass() -> None:
    model = small(depth=1)
    with torch.no_grad():
        logits = model(torch.full((1, 5), 3))[0]
    assert tuple(logits.shape) == (5, 11)
    assert not torch.allclose(logits[0], logits[4], atol=1e-4)


def test_it_starts_undecided_and_learns_to_count() -> None:
    model = small()
    x = (torch.arange(8)[None, :] + torch.arange(11)[:, None]) % 11  # every run of eight numbers
    y = (x + 1) % 11
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def loss() -> torch.Tensor:
        return F.cross_entropy(model(x).flatten(0, -2), y.flatten())

    assert float(loss().detach()) == pytest.approx(math.log(11), rel=0.05)
    for _ in range(60):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
    assert float(loss().detach()) < 0.1


def test_what_it_cannot_take_is_said() -> None:
    with pytest.raises(ConfigError, match=r"^--width 20: tinygpt has 8 heads; accepted is a multiple of 8$"):
        build(Federation(model="tinygpt", width=20), "", (8,), 11, 0)
    with pytest.raises(
        ConfigError, match=r"^--model tinygpt: needs windows of tokens, not inputs of shape \(3, 32, 32\)"
    ):
        build(Federation(model="tinygpt"), "", (3, 32, 32), 10, 0)
    with pytest.raises(ConfigError, match=r"^--vocabulary 16777217: .*a vote is at most three bytes"):
        Federation.parse({"vocabulary": MAX_CLASSES + 1})
    assert Federation.parse({"vocabulary": MAX_CLASSES}).vocabulary == MAX_CLASSES
