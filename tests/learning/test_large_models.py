"""A large model's gradients stay in its own tensors: the steps are those over one flat gradient, up to rounding."""

import pytest
import torch
from torch import nn

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.learning import parameters
from p2p_tally.learning.data import Arrays
from p2p_tally.learning.data.probes import ProbePool
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.schedule import resolve


class Net(nn.Module):
    """With a layer that the output does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.unused, self.last = nn.Linear(6, 5), nn.Linear(2, 2), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.first(x).relu())
        return out


def learner(**options: object) -> Learner:
    random = torch.Generator().manual_seed(0)
    data = Arrays(torch.randn(50, 6, generator=random), torch.randint(3, (50,), generator=random))
    federation = resolve(Federation.parse({"rounds": 20, "batch": 7, "lr": 0.01, **options}), labelled=True)
    torch.manual_seed(3)
    return Learner(NodeName("node-0"), federation, Net(), 3, data, ProbePool(data, 8, 0), data)


def play(peer: Learner) -> None:
    for _ in range(3):
        peer.train()
    peer.merge(peer.export() * 0.9)
    peer.train()


@pytest.mark.parametrize("options", [{}, {"method": "fedprox", "mu": 0.5}, {"clip": 0.01}])
def test_steps_are_the_same(monkeypatch: pytest.MonkeyPatch, options: dict[str, object]) -> None:
    flat = learner(**options)
    monkeypatch.setattr(parameters, "LARGE", 1)
    large = learner(**options)
    assert flat.parameters.gradient is not None and large.parameters.gradient is None
    play(flat)
    play(large)
    for key, value in flat.snapshot().items():
        torch.testing.assert_close(value, large.snapshot()[key], rtol=1e-4, atol=1e-6, msg=key)


def test_a_resumed_large_model_goes_on_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "LARGE", 1)
    peer, resumed = learner(), learner()
    play(peer)
    resumed.restore(peer.snapshot())
    peer.train()
    resumed.train()
    assert peer.parameters.sha256() == resumed.parameters.sha256()
    assert peer.snapshot()["optimiser.step"].item() == 25  # 5 rounds of 5
