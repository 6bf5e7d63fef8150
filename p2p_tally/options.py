"""Sets of options: a field is a key of a TOML file, an option of the command line, its own help and its own error."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticUndefined

from p2p_tally.errors import ConfigError

# Every option of the command line is also a variable of the environment.
VARIABLE_PREFIX = "P2P_TALLY_"

# How the metavar of an option ends that takes several values.
SEVERAL = ",..."
# The same of one that may be repeated; in one text its values are separated by spaces.
REPEATED = " ..."

# What --help shows under headings of their own, in this order, after the options that most runs need.
Group = Literal["", "Votes", "Merges", "Some methods", "Data", "Model", "Members", "Measuring", "Running", "Ray"]


def option(
    default: Any,
    meaning: str,
    accepted: str,
    *,
    metavar: str,
    agreed: bool = False,
    group: Group = "",
    **limits: Any,
) -> Any:
    """A field that is also a command-line option and a TOML key.

    `meaning` is its help text; `accepted` says what it takes, in the error for a bad value. An option whose `metavar`
    ends in ",..." takes several values separated by commas, and in a file also as a list; " ...": it may be repeated.
    """
    extra: Any = {"accepted": accepted, "metavar": metavar, "agreed": agreed, "group": group}
    return Field(default, description=meaning, json_schema_extra=extra, **limits)


def variable_of(flag: str) -> str:
    """The environment variable of an option: P2P_TALLY_MERGE_EVERY of --merge-every."""
    return VARIABLE_PREFIX + flag.removeprefix("--").replace("-", "_").upper()


class Options(BaseModel):
    """Base of the two option sets: frozen, strict about keys, with one-line errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _join_lists(cls, given: Any) -> Any:
        """A list where several values are accepted, as the text that the command line has for them."""
        if not isinstance(given, Mapping):
            return given
        return {name: cls._joined(name, value) for name, value in given.items()}

    @classmethod
    def _joined(cls, name: str, value: Any) -> Any:
        if name not in cls.model_fields or not isinstance(value, list):
            return value
        metavar, texts = str(cls.about(name)["metavar"]), all(isinstance(one, str) for one in value)
        for ending, separator in ((SEVERAL, ","), (REPEATED, " ")):
            if metavar.endswith(ending) and texts:
                return separator.join(value)
        return value

    @classmethod
    def parse(cls, values: Mapping[str, Any], *, source: str = "") -> Self:
        """The validated options, or a ConfigError of one line naming the option, the value and what is accepted."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigError(cls._explain(error, source)) from None

    @classmethod
    def _explain(cls, error: ValidationError, source: str) -> str:
        first = error.errors()[0]
        where = f"{source}: " if source else ""
        if not first["loc"]:
            return where + str(first["ctx"]["error"] if "ctx" in first else first["msg"])
        name = str(first["loc"][0])
        if name not in cls.model_fields:
            return f"{where}unknown key {name!r}; known keys: {', '.join(sorted(cls.model_fields))}"
        accepted = cls.about(name)["accepted"]
        value = " ".join(str(first["input"]).split())  # one line, whatever was given
        return f"{where}--{name.replace('_', '-')} {value}: accepted is {accepted}"

    @classmethod
    def about(cls, name: str) -> dict[str, Any]:
        """Help text, metavar, default and acceptance of one option, for the command line."""
        field = cls.model_fields[name]
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        default = None if field.default is PydanticUndefined else field.default
        return {**extra, "meaning": field.description, "default": default}
