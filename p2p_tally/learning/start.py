"""How a model begins: which of its parameters train (--train), and from which values (--init).

What does not train is neither sent nor merged, so peers that merge must hold the same: `frozen_tensors` and its digest.
"""

import logging
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import Digest, digest
from p2p_tally.learning.architectures import shown
from p2p_tally.learning.norms import live_statistics
from p2p_tally.learning.saved.file import read_bytes, read_model
from p2p_tally.learning.saved.loaded import shape_of

log = logging.getLogger(__name__)

ALL, HEAD = "all", "head"

# Names that a message lists.
LISTED = 8


def choose_trained(model: nn.Module, train: str) -> None:
    """Freeze every parameter that `train` does not name. What the model's own code has frozen stays so."""
    if train == ALL:
        return
    patterns = train.split(",")
    if HEAD in patterns:
        patterns += _head(model)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    chosen = {name for name in names for pattern in patterns if fnmatchcase(name, pattern)}
    if not chosen:
        more = ", ..." if len(names) > LISTED else ""
        raise ConfigError(
            f"--train {train}: no parameter has such a name; accepted is {ALL}, {HEAD}, or patterns of "
            f"{', '.join(names[:LISTED])}{more}"
        )
    for name, parameter in model.named_parameters():
        if name not in chosen:
            parameter.requires_grad_(False)


def _head(model: nn.Module) -> list[str]:
    """The names of the parameters of the last module that has any of its own."""
    last: list[str] = []
    for name, module in model.named_modules():
        own = [f"{name}.{key}" if name else key for key, _ in module.named_parameters(recurse=False)]
        last = own or last
    return last


@torch.no_grad()
def warm_start(model: nn.Module, path: Path) -> None:
    """Take the values of a file. Parameters that train beside frozen ones may be missing there: a new head for an old
    backbone keeps its own initialisation. So may the statistics that BatchNorm gets from the probes."""
    held = _read(path, path.stat().st_mtime_ns if path.exists() else 0)
    parameters = dict(model.named_parameters())
    partly = any(not parameter.requires_grad for parameter in parameters.values())
    own = live_statistics(model)
    taken, fresh = 0, []
    for key, tensor in model.state_dict().items():
        value = held.get(key)
        if value is not None and value.shape == tensor.shape:
            tensor.copy_(value)
            taken += key in parameters
        elif key in own:
            continue
        elif partly and key in parameters and parameters[key].requires_grad:
            fresh.append(key)
        else:
            raise ConfigError(
                f"--init {path}: {key} is {shape_of(value)} in the file, {shape_of(tensor)} in the model; "
                "accepted is a file with all parameters but those that --train names"
            )
    if not taken:
        raise ConfigError(f"--init {path}: has no parameter of this model")
    unused = sorted(held.keys() - model.state_dict().keys())
    _say_once(path, tuple(fresh), tuple(unused))


@lru_cache(maxsize=1)  # the nodes of a simulation begin with the same file, one after the other
def _read(path: Path, _changed: int) -> dict[str, Tensor]:
    return read_model(read_bytes(path, "--init "), f"--init {path}")[0]


@cache
def _say_once(path: Path, fresh: tuple[str, ...], unused: tuple[str, ...]) -> None:
    if fresh:
        log.warning("--init %s: not in the file, or of another shape, and so begun anew: %s", path, ", ".join(fresh))
    if unused:
        listed = ", ".join(unused[:LISTED]) + (", ..." if len(unused) > LISTED else "")
        log.warning("--init %s: not of this model, and so not used: %s", path, listed)


def frozen_tensors(model: nn.Module) -> dict[str, Tensor]:
    """What a model holds that neither trains nor follows from what trains: parameters and buffers, by name."""
    frozen = {key: p.detach() for key, p in model.named_parameters() if not p.requires_grad}
    own = live_statistics(model)
    return frozen | {key: buffer for key, buffer in model.named_buffers() if key not in own}


def frozen_digest(model: nn.Module) -> Digest | None:
    """What peers that merge compare; None where everything trains."""
    held = frozen_tensors(model)
    if not held:
        return None
    parts = [f"{key} {shape_of(held[key])}".encode() for key in sorted(held)]
    values = [held[key].cpu().contiguous().flatten().view(torch.uint8).numpy() for key in sorted(held)]
    return digest(*parts, *(value.data for value in values))


def check_frozen(federation: Federation, peers: Iterable[Mapping[str, Tensor]]) -> None:
    """Refuse peers that merge and do not hold the same frozen tensors. `peers`: those of each, in order of rank."""
    first: Mapping[str, Tensor] | None = None
    for rank, held in enumerate(peers):
        first = held if first is None else first
        for key, tensor in held.items():
            if not same_values(first[key], tensor):
                raise ConfigError(
                    f"--model {shown(federation.model)}: {key} does not train and is another at node-{rank} than at "
                    "node-0, and what is merged would not fit both; accepted is the same at all, by --start common, "
                    "--init FILE or a seed of its own"
                )


def same_values(one: Tensor | None, other: Tensor) -> bool:
    """Whether two tensors have the same values, NaN in the same places included."""
    if one is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other) | (one.isnan() & other.isnan())).all())
