"""ResNet-18: torchvision's own, counted, with batch statistics only."""

import pytest
import torch

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.models import build


@pytest.mark.parametrize(("classes", "parameters"), [(10, 11_181_642), (100, 11_227_812)])
def test_parameter_counts_are_the_papers(classes: int, parameters: int) -> None:
    model = build(Federation(model="resnet18"), "mlp", (3, 32, 32), classes, seed=0)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_a_prediction_depends_on_its_batch_in_training_and_leaves_no_trace() -> None:
    model = build(Federation(model="resnet18"), "mlp", (3, 32, 32), 10, seed=0)
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        evaluated = model.eval()(x[:2])
        training, first = model.train()(x), model.train()(x[:2])
        assert torch.equal(model.eval()(x[:2]), evaluated)
    assert not torch.allclose(training[:2], first)


def test_what_it_cannot_take_is_said() -> None:
    with pytest.raises(ConfigError, match=r"^--model resnet18: needs inputs \[3, height, width\], not \(64,\)$"):
        build(Federation(model="resnet18"), "", (64,), 10, 0)
    with pytest.raises(ConfigError, match=r"^--batch 1: resnet18 normalises over the batch"):
        build(Federation(model="resnet18", batch=1), "", (3, 32, 32), 10, 0)
    with pytest.raises(ConfigError, match=r"^--probes-per-round 1: resnet18 normalises over the batch"):
        build(Federation(model="resnet18", probes_per_round=1), "", (3, 32, 32), 10, 0)
