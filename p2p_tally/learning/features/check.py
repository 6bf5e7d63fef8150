"""How good features are: the accuracy of one model that is trained on all of them in one place."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from p2p_tally.learning.data import Examples, every_index

HIDDEN = 128
EPOCHS = 15
BATCH = 128
RATE = 2e-3
DECAY = 0.1


def central_accuracy(train: Examples, test: Examples, classes: int, seed: int = 0) -> tuple[float, float]:
    """Percent of training and of test examples that an MLP with one hidden layer has right after AdamW."""
    (x, y), (test_x, test_y) = (_all(examples) for examples in (train, test))
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes))
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    steps = EPOCHS * -(-len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps, pct_start=0.05)
    for _ in range(EPOCHS):
        for some in torch.split(torch.randperm(len(x), generator=generator), BATCH):
            optimiser.zero_grad()
            F.cross_entropy(model(x[some]), y[some]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return _percent_right(model, x, y), _percent_right(model, test_x, test_y)


def _all(examples: Examples) -> tuple[Tensor, Tensor]:
    x, y = examples.take(every_index(examples))
    assert y is not None
    return x, y


@torch.no_grad()
def _percent_right(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return 100 * float((model(x).argmax(1) == y).float().mean())
