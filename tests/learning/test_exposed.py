"""Features of a model: what goes into its last linear layer."""

import pytest
import torch
from torch import nn

from p2p_tally.errors import ConfigError
from p2p_tally.learning.exposed import feature_width, outputs_of


def test_features_stand_before_the_logits_and_have_a_gradient() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    outputs = outputs_of(model, features=True)(x)
    assert outputs.shape == (5, 4 + 2) and feature_width(model) == 4
    torch.testing.assert_close(outputs[:, :4], model[1](model[0](x)))
    torch.testing.assert_close(outputs[:, 4:], model(x))
    outputs[:, :4].sum().backward()
    assert model[0].weight.grad.any() and not model[2].weight.grad.any()
    assert not model[2]._forward_pre_hooks  # nothing stays behind
    assert outputs_of(model, features=False)(x).shape == (5, 2)


def test_a_model_without_a_linear_layer_has_none() -> None:
    with pytest.raises(ConfigError, match="--model Flatten: its features are asked for, and it has no linear layer"):
        feature_width(nn.Flatten())
