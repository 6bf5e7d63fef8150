"""Options that several commands take: those made from the fields of the option models, and a few of the command line's.

An option is written down once: its name, meaning and default are the model's field.
"""

import inspect
import json
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from p2p_tally.cli_help import completer
from p2p_tally.config import Federation, Settings, parse_options, read_options
from p2p_tally.errors import ConfigError
from p2p_tally.json_lines import json_value, write_line
from p2p_tally.options import REPEATED, SEVERAL, Options

log = logging.getLogger(__name__)

ConfigFile = Annotated[
    list[Path] | None,  # a list, so that a second one is noticed
    typer.Option("--config", metavar="FILE", help="TOML file of options; a flag or a variable wins over it"),
]
ResumeFolder = Annotated[
    Path | None, typer.Option("--resume", metavar="FOLDER", help="go on with the stopped run in this folder")
]
On = Annotated[
    str | None,
    typer.Option(
        metavar="local|ray",
        help="processes of this machine, or of a Ray cluster [default: local]",
        rich_help_panel="Ray",
    ),
]
OldEngine = Annotated[str | None, typer.Option("--engine", hidden=True)]  # what --on was called
RayAddress = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="ray: local (started for this command), auto (the cluster of this machine), HOST:PORT",
        rich_help_panel="Ray",
    ),
]
Page = Annotated[
    bool, typer.Option("--page", help="serve a live page of the run on this machine, and print its address")
]
Json = Annotated[bool, typer.Option("--json", help="print one line of JSON and nothing else")]


def takes_options(
    *models: type[Options], open_default: Collection[str] = (), only: Collection[str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command every field of the models as an option; it is called with the given ones as one dict `given`.

    `open_default`: options that mean something else to this command where they are not given. `only`: these fields
    alone.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command).parameters
        fields = {
            name: model.about(name) for model in models for name in model.model_fields if only is None or name in only
        }

        def wrapper(**values: Any) -> None:
            given = {name: _joined(values.pop(name), about) for name, about in fields.items() if name in values}
            command(given={key: value for key, value in given.items() if value is not None}, **values)

        parameters = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=_annotation(name, about, show_default=name not in open_default),
            )
            for name, about in fields.items()
        ]
        parameters += [parameter for name, parameter in own.items() if name != "given"]
        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        wrapper.__doc__ = command.__doc__
        wrapper.__name__ = command.__name__
        return wrapper

    return decorate


def _joined(value: Any, about: dict[str, Any]) -> Any:
    """One text of what was given several times; None of what was not given."""
    separator = " " if str(about["metavar"]).endswith(REPEATED) else ","
    return (separator.join(value) or None) if isinstance(value, list | tuple) else value


def _annotation(name: str, about: dict[str, Any], show_default: bool) -> Any:
    """A switch for yes or no; otherwise text, which the model reads, so that a bad value gets its one-line message."""
    flag, panel = _flag(name), about["group"] or None
    if about["default"] is False:
        return Annotated[
            bool | None, typer.Option(flag, help=about["meaning"], show_default=False, rich_help_panel=panel)
        ]
    help = about["meaning"]
    if show_default and about["default"] not in (None, ""):
        help += f" [default: {about['default']}]"
    metavar: str = about["metavar"]
    shown = typer.Option(
        flag, metavar=metavar.removesuffix(REPEATED), help=help, rich_help_panel=panel, autocompletion=completer(name)
    )
    several = metavar.endswith((SEVERAL, REPEATED))  # then the option may also be given several times
    return Annotated[list[str] | None, shown] if several else Annotated[str | None, shown]


def collect_options(
    given: dict[str, Any], config: list[Path] | None, settings: type[Settings]
) -> tuple[Federation, Settings]:
    """The command line's options over those of the file."""
    from_file = file_options(config)
    if config:
        parse_options(from_file, settings, source=str(config[0]))  # a bad key is then reported as the file's
    return parse_options({**from_file, **given}, settings)


def check_beside_resume(given: Collection[str], config: list[Path] | None, accepted: Collection[str]) -> None:
    """Refuse options beside --resume, but for the accepted ones: they say where a run continues, not what it is."""
    refused = [*(name for name in given if name not in accepted), *(["config"] if config else [])]
    if refused:
        beside = ", ".join(_flag(name) for name in sorted(accepted)) or "--on"
        raise ConfigError(
            f"{_flag(refused[0])}: --resume goes on with the run as it was; accepted beside it is {beside}"
        )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def file_options(config: list[Path] | None) -> dict[str, Any]:
    """What the file given by --config says."""
    if not config:
        return {}
    if len(config) > 1:
        raise ConfigError(f"--config {config[1]}: a second file, after {config[0]}; accepted is one")
    return read_options(config[0])


def is_on_ray(on: str | None, engine: str | None) -> bool:
    """Where the processes of a command run. `engine` is the option's old name, which now belongs to simulate alone."""
    if on is not None and engine is not None:
        raise ConfigError(f"--engine {engine}: the old name of --on, which is given too; accepted is --on alone")
    option, where = ("--on", on or "local") if engine is None else ("--engine", engine)
    if where not in ("local", "ray"):
        raise ConfigError(f"{option} {where}: accepted is local or ray")
    if engine is not None:
        log.warning("--engine %s: this option is now --on %s", engine, engine)
    return where == "ray"


def print_json(values: dict[str, Any]) -> None:
    """One line of JSON on standard output."""
    write_line(json.dumps(json_value(values)))


def print_end(result: dict[str, Any], how_to_go_on: str) -> None:
    """How a node ended, for a person."""
    if result["finished"]:
        print(f"{result['name']}: finished {result['round']} rounds, parameters {result['parameters_sha256']}")
    else:
        print(f"{result['name']}: stopped after round {result['round']}; {how_to_go_on}")
