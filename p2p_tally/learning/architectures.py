"""Which node holds which model: the items of --model, dealt out by rank. Text alone: nothing is built here, no torch.

mlp                        a model of this project, of the size that --width and --depth say
mlp:64, mlp:64x2           the same with a width, and a depth, of its own; 0 stands for the model's own
package.module:function    a user's own; no function's name begins with a digit
"""

import logging
import re

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.methods import method_of

log = logging.getLogger(__name__)

_SIZED = re.compile(r"([^:]+):(\d{1,9})(?:x(\d{1,9}))?")


def name_of(item: str) -> str:
    """What is to be built, without its size."""
    sized = _SIZED.fullmatch(item)
    return sized[1] if sized else item


def is_sized(item: str) -> bool:
    return _SIZED.fullmatch(item) is not None


def size_flag(federation: Federation, otherwise: str) -> str:
    """Where a model's size comes from, for the first words of an error: its item, or an option."""
    return f"--model {federation.model}" if is_sized(federation.model) else otherwise


def of_rank(federation: Federation, rank: int) -> Federation:
    """The federation as the node of this rank builds its model by: one item, and the width and depth that go for it."""
    items = federation.model.split(",")
    item = items[rank % len(items)]
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
    items = federation.model.split(",")
    ranks: dict[str, list[int]] = {}
    for rank in range(federation.nodes):
        ranks.setdefault(items[rank % len(items)], []).append(rank)
    return ranks


def check_models(federation: Federation) -> None:
    """Refuse a merge of different models: a mean of their parameters means nothing."""
    held = holders(federation)
    method = method_of(federation)
    merge_every = method.merge_every if federation.merge_every is None else federation.merge_every
    if len(held) > 1 and merge_every and federation.method != "local":
        raise ConfigError(
            f"--model {federation.model}: --method {federation.method} with --merge-every {merge_every} averages "
            "parameters, which takes one model for all; accepted are tally, fedmd, rcfd and no-consensus with "
            "--merge-every 0, and local"
        )
    idle = [item for item in dict.fromkeys(federation.model.split(",")) if item not in held]
    if idle:
        log.warning(
            "--model %s: more models than the %d nodes; nobody holds %s",
            federation.model,
            federation.nodes,
            ", ".join(idle),
        )
