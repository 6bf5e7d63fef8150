"""Which node holds which model: the items of --model, dealt out by rank. Nothing is built here, and no torch is needed.

mlp                        a model of this project, of the size that --width and --depth say
mlp:64, mlp:64x2           the same with its own width, or width and depth; 0 stands for the model's own
package.module:function    a user's own; no function's name begins with a digit
"""

import logging
import re
from collections.abc import Callable

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.methods import method_of

log = logging.getLogger(__name__)

_SIZED = re.compile(r"([^:]+):(\d{1,9})(?:x(\d{1,9}))?")

Item = str | Callable[..., object]  # one item of --model, or in Python a function that returns a model


def items_of(federation: Federation) -> list[Item]:
    """The models that are dealt out."""
    return list(federation.model.split(",")) if isinstance(federation.model, str) else [federation.model]


def shown(item: Item) -> str:
    """An item as messages and tables name it."""
    return item if isinstance(item, str) else str(getattr(item, "__name__", item))


def name_of(item: str) -> str:
    """What is to be built, without its size."""
    sized = _SIZED.fullmatch(item)
    return sized[1] if sized else item


def is_sized(item: Item) -> bool:
    return isinstance(item, str) and _SIZED.fullmatch(item) is not None


def size_flag(federation: Federation, otherwise: str) -> str:
    """What a message about a model's size begins with: the item that gives the size, or an option."""
    return f"--model {federation.model}" if is_sized(federation.model) else otherwise


def of_rank(federation: Federation, rank: int) -> Federation:
    """The federation as the node of this rank builds its model by: one item, and its width and depth."""
    items = items_of(federation)
    item = items[rank % len(items)]
    if not isinstance(item, str):
        return federation
    sized = _SIZED.fullmatch(item)
    _, colon, after = item.partition(":")
    if colon and not sized and not after.isidentifier():
        raise ConfigError(f"--model {item}: accepted after the colon is WIDTH, WIDTHxDEPTH or the name of a function")
    if sized is None:
        return federation if len(items) == 1 else federation.model_copy(update={"model": item})
    width, depth = int(sized[2]) or federation.width, int(sized[3] or 0) or federation.depth
    return federation.model_copy(update={"model": item, "width": width, "depth": depth})


def holders(federation: Federation) -> dict[str, list[int]]:
    """The ranks that hold each model, by its item, in the order of the first that does."""
    items = items_of(federation)
    ranks: dict[str, list[int]] = {}
    for rank in range(federation.nodes):
        ranks.setdefault(shown(items[rank % len(items)]), []).append(rank)
    return ranks


def check_models(federation: Federation) -> None:
    """Refuse a merge of different models: a mean of their parameters means nothing."""
    held = holders(federation)
    method = method_of(federation)
    merge_every = method.merge_every if federation.merge_every is None else federation.merge_every
    if len(held) > 1 and merge_every and method.merges:
        raise ConfigError(
            f"--model {federation.model}: --method {method.name} with --merge-every {merge_every} averages "
            "parameters, which takes one model for all; accepted are tally, fedmd, rcfd and no-consensus with "
            "--merge-every 0, and local"
        )
    idle = [item for item in dict.fromkeys(map(shown, items_of(federation))) if item not in held]
    if idle:
        log.warning(
            "--model %s: more models than the %d nodes; nobody holds %s",
            federation.model,
            federation.nodes,
            ", ".join(idle),
        )
