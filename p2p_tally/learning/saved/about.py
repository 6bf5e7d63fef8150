"""What a saved model is: everything that it takes to build it again and to give it inputs. JSON in, JSON out."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from p2p_tally.config import Federation
from p2p_tally.errors import DataError
from p2p_tally.learning.architectures import name_of, shown
from p2p_tally.learning.data import Normalise
from p2p_tally.learning.data.images import PerChannel
from p2p_tally.learning.models import models

# Changes when a reader of the earlier form would misread a file.
FORMAT = 1

OWN = "own"  # inputs are normalised by a function of the data source's own

LARGEST = 2**31  # a size beyond it is a mistake, or a trick


@dataclass(frozen=True)
class About:
    """One model. No path of data is in it: the file is given to others."""

    model: str  # a model of this project, or a user's own: package.module:function, or where there is no path its name
    width: int  # 0: the model's own
    depth: int
    input_shape: tuple[int, ...]  # of one example
    classes: int
    normalise: PerChannel | str | None = None  # of stored inputs, or OWN; None: they are stored as the model wants them
    seed: int = 0  # of the run: it may decide which examples of a data set are the test set
    tokenizer: str | None = None  # of text: the tokenizer's own JSON

    @classmethod
    def of(
        cls,
        federation: Federation,
        default: str,
        input_shape: tuple[int, ...],
        classes: int,
        normalise: Normalise | None,
        tokenizer: str | None,
    ) -> "About":
        """`federation` as architectures.of_rank gives it: its model is one item. `default`: what auto stands for."""
        item = federation.model
        name = name_of(item) if isinstance(item, str) else shown(item)
        return cls(
            model=default if name == "auto" else name,
            width=federation.width,
            depth=federation.depth,
            input_shape=input_shape,
            classes=classes,
            normalise=normalise if normalise is None or isinstance(normalise, PerChannel) else OWN,
            seed=federation.seed,
            tokenizer=tokenizer,
        )

    @property
    def is_own(self) -> bool:
        """Whether a user's own function builds the model."""
        return self.model not in models()

    def as_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, source: str) -> "About":
        """`source`: the file, for messages. Anybody may have written it, so every field is checked."""
        try:
            values = _checked(json.loads(text), dict)
            if values["format"] != FORMAT:
                raise DataError(f"{source}: its description is of format {values['format']}; accepted is {FORMAT}")
            tokenizer = values["tokenizer"]
            return cls(
                model=_checked(values["model"], str),
                width=_size(values["width"]),
                depth=_size(values["depth"]),
                input_shape=tuple(_size(size) for size in _checked(values["input_shape"], list)),
                classes=_size(values["classes"]),
                normalise=_normalise(values["normalise"]),
                seed=_checked(values["seed"], int),
                tokenizer=None if tokenizer is None else _checked(tokenizer, str),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            what = " ".join(f"{type(error).__name__} {error}".split())[:200]
            raise DataError(f"{source}: its description cannot be read ({what})") from None


def _checked(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{value!r:.80} is no {kind.__name__}")
    return value


def _size(value: Any) -> int:
    size: int = _checked(value, int)
    if not 0 <= size < LARGEST:
        raise ValueError(f"{size} is no size")
    return size


def _normalise(value: Any) -> PerChannel | str | None:
    if value is None or value == OWN:
        return value  # type: ignore[no-any-return]
    constants = _checked(value, dict)
    mean, std = (tuple(float(_checked(x, float)) for x in _checked(constants[key], list)) for key in ("mean", "std"))
    if len(mean) != len(std):
        raise ValueError("mean and std differ in length")
    return PerChannel(mean, std)
