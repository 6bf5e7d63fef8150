"""Two pages made from the program itself: the command line from its options, the Python names from their docstrings."""

import inspect
from typing import Any

import typer

import p2p_tally
from p2p_tally import cli, config
from p2p_tally.options import Options

# --- the command line


def command_line_page() -> str:
    group: Any = typer.main.get_command(cli.app)
    shared = {name.replace("_", "-") for name in config.Federation.model_fields}
    parts = [
        "# Command line",
        "This page is made from the program: it says what `p2p-tally COMMAND --help` says.",
        group.help,
        "Every option is also a variable of the environment: `--merge-every` is `P2P_TALLY_MERGE_EVERY`. The command "
        "line wins over the environment, and the environment over the file that `--config` names.",
        "## Options of a federation",
        "`simulate`, `launch` and `node` take all of these. Each is also a key of the TOML file that `--config` names, "
        "with `_` or `-`.",
        _fields(config.Federation),
    ]
    for name, command in sorted(group.commands.items()):
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
        own = [one for one in options if not {opt.removeprefix("--") for opt in one.opts} & shared]
        usage = " ".join([f"p2p-tally {name}", *(one.metavar or one.name.upper() for one in arguments), "[OPTIONS]"])
        parts += [f"## {name}", inspect.cleandoc(command.help or ""), f"    {usage}"]
        if len(own) < len(options):
            parts.append("Takes the [options of a federation](#options-of-a-federation), and:")
        rows = [(one.metavar or one.name.upper(), getattr(one, "help", "") or "") for one in arguments]
        rows += [(" ".join([*one.opts, _metavar(one)]).strip(), one.help or "") for one in own]
        parts.append(_table(("option", "meaning"), rows))
    return "\n\n".join(parts) + "\n"


def _metavar(option: Any) -> str:
    return "" if option.is_flag else str(option.metavar or "VALUE")


# --- Python


def python_page() -> str:
    parts = ["# Python", "Everything that `import p2p_tally` offers. This page is made from the docstrings."]
    for name in sorted(p2p_tally.__all__, key=str.lower):
        value = getattr(p2p_tally, name)
        parts += [f"## {name}", *_about(name, value)]
    parts += ["## Errors", inspect.cleandoc(inspect.getdoc(p2p_tally.errors) or "")]
    return "\n\n".join(parts) + "\n"


def _about(name: str, value: Any) -> list[str]:
    if inspect.isclass(value) and issubclass(value, Options):
        return [_doc(value), _fields(value)]
    if inspect.isclass(value):
        return [_signature(name, value), _doc(value), *_own_doc(value), *_members(value)]
    if callable(value):
        return [_signature(name, value), _doc(value)]
    return [f"The methods that come with the project, by name: {', '.join(f'`{key}`' for key in value)}."]


def _members(owner: type) -> list[str]:
    parts = []
    for name, member in vars(owner).items():
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        shown = f"`{name}`" if isinstance(member, property) else f"`{_head(name, member)}`"
        parts.append(f"{shown}\n:   {' '.join(_doc(member).split()) or 'See the source.'}")
    return ["**Members**", *parts] if parts else []


def _own_doc(owner: type) -> list[str]:
    init = vars(owner).get("__init__")
    return [_doc(init)] if init is not None and init.__doc__ and not init.__doc__.startswith("Initialize") else []


def _head(name: str, function: Any) -> str:
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return f"{prefix}{name}(...)"
    kept = [
        one.replace(annotation=inspect.Parameter.empty) for key, one in signature.parameters.items() if key != "self"
    ]
    return f"{prefix}{name}{inspect.Signature(kept)}"


def _signature(name: str, value: Any) -> str:
    return f"```python\n{_head(name, value)}\n```"


def _doc(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "")


# --- both


def _fields(options: type[Options]) -> str:
    rows = []
    for name in options.model_fields:
        about = options.about(name)
        default = "" if about["default"] is None else f" Default: `{about['default']}`."
        rows.append(
            (
                f"--{name.replace('_', '-')} {about['metavar']}",
                f"{about['meaning']}. Accepted: {about['accepted']}.{default}",
            )
        )
    return _table(("option", "meaning"), rows)


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "| --- | --- |"]
    for first, second in rows:
        lines.append(f"| `{' '.join(first.split())}` | {_cell(second)} |")  # a pipe within code needs no mark here
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
