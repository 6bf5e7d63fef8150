"""A user's own function, named by import path on the command line."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from p2p_tally.errors import ConfigError


def import_function(spec: str, flag: str) -> Callable[..., Any]:
    """`package.module:function` as that function. The working folder is searched too, as `python -m` would."""
    module_name, _, function_name = spec.partition(":")
    if not module_name or module_name.startswith("."):
        raise ConfigError(f"{flag} {spec}: accepted is package.module:function")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that the user's own module misses is worth its own name in the message.
        raise ConfigError(
            f"{flag} {spec}: no module named {error.name!r}; accepted is package.module:function"
        ) from None
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigError(f"{flag} {spec}: module {module_name!r} has no function {function_name!r}")
    return function  # type: ignore[no-any-return]
