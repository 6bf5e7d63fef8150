"""What a row's functions may do with a peer's own data in a merge: judge parameters by it, and train several models on
it. Models are in evaluation mode throughout: no dropout."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from p2p_tally.config import Federation
from p2p_tally.ids import derive_seed
from p2p_tally.learning.by_rows import ByRows
from p2p_tally.learning.data import Examples
from p2p_tally.learning.norms import training_mode
from p2p_tally.learning.voting.skew import class_counts

# Examples that models are judged by, evenly spaced over a peer's own.
MOST = 256


class Own:
    """One peer's. Called with parameters [W], it gives their mean cross-entropy on the peer's own examples."""

    def __init__(
        self,
        name: str,
        federation: Federation,
        model: nn.Module,
        examples: Examples,
        normalise: Callable[[Tensor], Tensor],
        classes: int,
        state: Mapping[str, Tensor],
    ) -> None:
        """`state`: that of the row's merge step, at this peer."""
        self.state = state
        self._name = name
        self._federation = federation
        self._examples = examples
        self._normalise = normalise
        self._classes = classes
        self._models = ByRows(model)
        self._device = next(model.parameters()).device

    def __call__(self, vector: Tensor) -> float:
        x, y = self._judging
        with torch.no_grad():
            return float(F.cross_entropy(self.logits(vector[None], x)[0], y))

    def logits(self, rows: Tensor, x: Tensor) -> Tensor:
        """[n, B, C] of rows of parameters [n, W] on the same inputs [B, ...]; they can be differentiated."""
        with self._looking():
            return self._models(rows, x.expand(len(rows), *x.shape))

    def batch(self, *purpose: str | int) -> tuple[Tensor, Tensor]:
        """Inputs [B, ...] and labels of a private batch, drawn from the federation's seed by this purpose."""
        settings = self._federation
        draw = torch.Generator().manual_seed(derive_seed(settings.seed, self._name, *purpose))
        return self._taken(torch.randint(len(self._examples), (settings.batch,), generator=draw))

    @cached_property
    def log_shares(self) -> Tensor:
        """The logarithm of each class's share of the peer's own labels [C]; minus infinity where it has none."""
        counts = class_counts(self._examples, self._classes).to(self._device).float()
        return (counts / counts.sum()).log()

    @cached_property
    def _judging(self) -> tuple[Tensor, Tensor]:
        count = len(self._examples)
        return self._taken(torch.linspace(0, count - 1, min(MOST, count)).long())

    def _taken(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self._examples.take(indices)
        assert y is not None
        return self._normalise(x.to(self._device)), y.flatten().to(self._device)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        model = self._models.model
        model.eval()
        try:
            yield
        finally:
            training_mode(model)
