"""A user's own methods, models and data: found by import path, and named by it where another process must find them."""

import functools
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from p2p_tally.errors import ConfigError, OperatorError
from p2p_tally.ids import digest


def module_exists(name: str) -> bool:
    """Whether a top-level module of this name can be imported, the working folder included."""
    _search_here()
    return name.isidentifier() and find_spec(name) is not None


def _search_here() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def import_object(spec: str, flag: str, kind: str = "function") -> Any:
    """The object that `package.module:NAME` names. The working folder is searched too, as `python -m` does."""
    module_name, _, name = spec.partition(":")
    accepted = f"accepted is package.module:{kind}"
    if not module_name or module_name.startswith("."):
        raise ConfigError(f"{flag} {spec}: {accepted}")
    _search_here()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # The module that is missing may be one that the user's own module imports.
        raise ConfigError(f"{flag} {spec}: no module named {error.name!r}; {accepted}") from None
    except Exception as error:
        raise ConfigError(f"{flag} {spec}: its module fails: {what_and_where(error)}") from error
    if not hasattr(module, name):
        raise ConfigError(f"{flag} {spec}: module {module_name!r} has no {kind} {name!r}")
    return getattr(module, name)


def call_own(function: Callable[..., Any], what: str, **offered: Any) -> Any:
    """Call a user's function with those of the offered arguments that it takes. `what`: what messages begin with."""
    takes = inspect.signature(function).parameters
    missing = [name for name, one in takes.items() if name not in offered and _is_needed(one)]
    if missing:
        accepted = f"one that takes {' and '.join(offered)}, or nothing" if offered else "one that takes nothing"
        raise ConfigError(f"{what}: needs {', '.join(missing)}, which nobody gives it; accepted is {accepted}")
    try:
        return function(**{name: value for name, value in offered.items() if name in takes})
    except OperatorError:
        raise
    except Exception as error:
        raise ConfigError(f"{what}: it fails: {what_and_where(error)}") from error


def _is_needed(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )


def what_and_where(error: Exception) -> str:
    """An exception of a user's own code in one line, with the place of it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    said, file, line = str(error), last.filename, last.lineno
    if isinstance(error, SyntaxError):
        said, file, line = error.msg, error.filename or "", error.lineno
    return f"{type(error).__name__}: {' '.join(said.split())} ({Path(file).name}, line {line})"


def import_path(value: object) -> str | None:
    """`package.module:NAME` of an object that any process can import by that name; None where there is none.

    What is defined in a notebook, in the main script or inside a function has no such name.
    """
    defined = inspect.isfunction(value) or inspect.isclass(value)
    modules = [sys.modules.get(getattr(value, "__module__", ""))] if defined else list(sys.modules.values())
    for module in modules:
        spec = getattr(module, "__spec__", None)
        if spec is None or module is None or module.__name__ == "__main__" or spec.origin is None:
            continue
        for name, found in vars(module).items():
            if found is value and name.isidentifier() and not name.startswith("_"):
                return f"{module.__name__}:{name}"
    return None


def fingerprint(value: object) -> str:
    """A text that is the same in two processes only if they declare the same: a function by its name and its source."""
    if isinstance(value, functools.partial):
        return f"partial({fingerprint(value.func)}, {value.args!r}, {sorted(value.keywords.items())!r})"
    if is_dataclass(value) and not isinstance(value, type):
        parts = (f"{one.name}={fingerprint(getattr(value, one.name))}" for one in fields(value))
        return f"{type(value).__qualname__}({', '.join(parts)})"
    if not callable(value):
        return repr(value)
    name = getattr(value, "__qualname__", type(value).__qualname__)
    try:
        source = inspect.getsource(value)
    except (OSError, TypeError):
        return name
    return f"{name} {digest(source.encode())}"
