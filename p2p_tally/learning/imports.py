"""A user's own function, named by import path on the command line."""

import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from p2p_tally.errors import ConfigError


def module_exists(name: str) -> bool:
    """Whether a top-level module of this name can be imported, the working folder included."""
    _search_here()
    return name.isidentifier() and find_spec(name) is not None


def _search_here() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def import_function(spec: str, flag: str) -> Callable[..., Any]:
    """`package.module:function` as that function. The working folder is searched too, as `python -m` would."""
    module_name, _, function_name = spec.partition(":")
    if not module_name or module_name.startswith("."):
        raise ConfigError(f"{flag} {spec}: accepted is package.module:function")
    _search_here()
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
