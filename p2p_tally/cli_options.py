"""Options of the command line, made from the fields of the models that read them: each is written down once."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from p2p_tally.config import Federation, Settings, parse_options, read_options
from p2p_tally.options import Options


def takes_options(*models: type[Options]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command every field of the models as an option; it is called with the given ones as one dict `given`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command).parameters
        fields = {name: model.about(name) for model in models for name in model.model_fields}

        def wrapper(**values: Any) -> None:
            given = {name: values.pop(name) for name in fields if name in values}
            command(given={key: value for key, value in given.items() if value is not None}, **values)

        parameters = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=_annotation(name, about),
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


def _annotation(name: str, about: dict[str, Any]) -> Any:
    """A switch for yes or no; otherwise text, which the model reads, so that a bad value gets its one-line message."""
    flag = "--" + name.replace("_", "-")
    if about["default"] is False:
        return Annotated[bool | None, typer.Option(flag, help=about["meaning"], show_default=False)]
    return Annotated[str | None, typer.Option(flag, metavar=about["metavar"], help=_help(about))]


def _help(about: dict[str, Any]) -> str:
    default = "" if about["default"] is None else f" [default: {about['default']}]"
    return f"{about['meaning']}{default}"


def collect_options(
    given: dict[str, Any], config: Path | None, settings: type[Settings]
) -> tuple[Federation, Settings]:
    """The command line's options over those of the file."""
    if config is None:
        return parse_options(given, settings)
    from_file = read_options(config)
    parse_options(from_file, settings, source=str(config))  # so that a bad key is blamed on the file
    return parse_options({**from_file, **given}, settings)
