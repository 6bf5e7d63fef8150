"""Options from the environment: P2P_TALLY_MERGE_EVERY is --merge-every, of whatever command has it.

The command line wins over the environment, the environment over the file of --config. A variable that is empty counts
as not set. Knows no option by name: what a command takes is read from the command itself.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from p2p_tally.errors import ConfigError
from p2p_tally.options import VARIABLE_PREFIX, variable_of

# Variables of the project that need no option of their name: a node's home, and the browser of the tests.
OTHERS = {"P2P_TALLY_HOME", "P2P_TALLY_BROWSER"}

FLAGS = {"1": True, "true": True, "0": False, "false": False}

_NAMED = re.compile(r"(?:Invalid value for ')?(--[a-z][a-z0-9-]*)")


@dataclass(frozen=True)
class FromEnvironment:
    """What the environment gives the command that is called."""

    values: dict[str, Any] = field(default_factory=dict)  # by flag
    default_map: dict[str, Any] = field(default_factory=dict)  # the same, as click takes it

    def blame(self, message: str) -> str:
        """A message about an option whose value came from the environment, with the name of the variable."""
        named = _NAMED.match(message)
        return f"{variable_of(named[1])}: {message}" if named and named[1] in self.values else message


def read_environment(group: Any, words: Sequence[str], environment: Mapping[str, str]) -> FromEnvironment:
    """The values for the command that these words call. What the words give themselves is left out."""
    path, command = _called(group, words)
    values, by_name = {}, {}
    for flag, option in _options(command):
        text = environment.get(variable_of(flag), "")
        if text and not any(word == flag or word.startswith(f"{flag}=") for word in words):
            values[flag] = by_name[option.name] = _value(flag, option, text)
    default_map: dict[str, Any] = by_name
    for name in reversed(path):
        default_map = {name: default_map}
    return FromEnvironment(values, default_map)


def unknown_variables(group: Any, environment: Mapping[str, str]) -> Iterator[str]:
    """A line for each variable that has our prefix and that no command reads."""
    known = OTHERS | {variable_of(flag) for flag in _flags(group)}
    for name in sorted(environment):
        if name.startswith(VARIABLE_PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            yield f"{name}: no option has this variable" + (f"; did you mean {near[0]}?" if near else "")


def _called(group: Any, words: Sequence[str]) -> tuple[list[str], Any]:
    path, command = [], group
    for word in words:
        if word in getattr(command, "commands", {}):
            path.append(word)
            command = command.commands[word]
    return path, command


def _options(command: Any) -> Iterator[tuple[str, Any]]:
    """The options of one command; of a group none: they ask for a version or a help."""
    if hasattr(command, "commands"):
        return
    for parameter in command.params:
        if parameter.param_type_name == "option" and not parameter.hidden:
            yield next(name for name in parameter.opts if name.startswith("--")), parameter


def _flags(command: Any) -> Iterator[str]:
    for below in getattr(command, "commands", {}).values():
        yield from _flags(below)
    yield from (flag for flag, _ in _options(command))


def _value(flag: str, option: Any, text: str) -> Any:
    if option.is_flag:
        if text.lower() not in FLAGS:
            raise ConfigError(f"{variable_of(flag)} {text}: accepted is 1 or true, 0 or false")
        return FLAGS[text.lower()]
    return text.splitlines() if option.multiple else text
