"""The only place that imports torchvision: as it is where that works, with two missing schemas declared where not.

The published wheel of torchvision does not import beside a CPU-only torch: its compiled operators cannot load, and
its Python half then registers kernels for operators that nobody declared. The data sets and models used here need
none of those operators, so declaring their schemas is enough.
"""

import importlib
import sys
from functools import cache
from typing import Any

import torch

from p2p_tally.errors import ConfigError

# Operators that torchvision registers Python kernels for without looking whether its compiled half declared them.
SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

# A declaration lasts as long as its library object.
_declared: list[torch.library.Library] = []


@cache
def import_torchvision(wanted_by: str) -> Any:
    """The torchvision package. `wanted_by` is the option that needs it, for the message where it is not installed."""
    try:
        return importlib.import_module("torchvision")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{wanted_by}: needs the package {error.name}; install it with: pip install 'p2p-tally[vision]'"
        ) from None
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # halves of the failed import
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for schema in SCHEMAS:
        library.define(schema)  # type: ignore[no-untyped-call]
    _declared.append(library)
    return importlib.import_module("torchvision")
