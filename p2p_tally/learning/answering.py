"""With which parameters a peer answers, where they are not those that it trains."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

from p2p_tally.config import Federation

# (parameters [n, W], state of the merge step, federation) -> the parameters to answer with [n, W].
Answering = Callable[[Tensor, Mapping[str, Tensor], Federation], Tensor]


@contextmanager
def answering(
    rule: Answering | None, parameters: Tensor, state: Mapping[str, Tensor], federation: Federation
) -> Iterator[None]:
    """Rows of parameters [n, W] as they answer; afterwards as they were, bit for bit."""
    if rule is None:
        yield
        return
    trained = parameters.clone()
    parameters.copy_(rule(trained, state, federation))
    try:
        yield
    finally:
        parameters.copy_(trained)
