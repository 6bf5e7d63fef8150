"""Types of a federation's options: the names they take, and objects of the user's own.

A method, a model or a data source is a text, or in Python an object. An object that other processes can import is kept
as its import path, so that files and other processes get it too.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, Protocol

from pydantic import PlainValidator

from p2p_tally.own_objects import import_path

METHOD_NAMES = (
    "tally", "local", "no-consensus", "fedavg", "fedprox", "fedmd", "rcfd", "feddf", "fedct", "dsfl", "idkd", "cronus",
    "fd", "fedproto", "diloco", "gflat", "dspodfl", "pame", "spod-gt", "dpfl", "dfml", "fedkd", "fedspd",
)  # fmt: skip
Augmentation = Literal["auto", "none", "crop-flip"]
BallotCoding = Literal["byte", "packed", "coded"]
SoftPrecision = Literal["float32", "float16", "int8"]
MergePrecision = Literal["float32", "bfloat16", "int8"]
MergeWhen = Literal["clock", "drift"]
MergeOver = Literal["neighbours", "ring"]
TallyWeights = Literal["auto", "uniform", "mixing", "reliability"]
Recipe = Literal["plain", "skewed"]
ConsensusWeight = Literal["fixed", "agreement", "margin"]
Start = Literal["auto", "own", "common"]
ProbeLabels = Literal["known", "hidden"]

# Three bytes name at most this many classes.
MAX_CLASSES = 1 << 24

# No feature that is sent is further from 0: one value of a liar cannot make the mean of all overflow.
LARGEST_FEATURE = 1e4

_OWN = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")  # package.module:NAME
_MODELS = re.compile(r"[^,\s]+(,[^,\s]+)*")


class OwnMethod(Protocol):
    """A row of learning/methods.py, as far as the options need to know it."""

    @property
    def name(self) -> str: ...

    def agreed_value(self) -> str:
        """Its name and a digest of what it declares: equal at two peers only if their rows are."""
        ...


class OwnSource(Protocol):
    """A Source of learning/data, as far as the options need to know it."""

    @property
    def classes(self) -> int: ...


def _method(value: Any) -> Any:
    if isinstance(value, str):
        if value in METHOD_NAMES or _OWN.fullmatch(value):
            return value
    elif hasattr(value, "agreed_value") and not isinstance(value, type):
        return value.name if value.name in METHOD_NAMES else import_path(value) or value
    raise ValueError("no method")


def _source(value: Any) -> Any:
    if isinstance(value, str) and value:
        return value
    if callable(value) and import_path(value):
        return import_path(value)
    if hasattr(value, "input_shape") and not isinstance(value, type):
        return import_path(value) or value
    raise ValueError("no source")


def _model(value: Any) -> Any:
    if isinstance(value, str):
        if _MODELS.fullmatch(value):
            return value
    elif callable(value):
        return import_path(value) or value
    raise ValueError("no model")


MethodOption = Annotated[str | OwnMethod, PlainValidator(_method)]
SourceOption = Annotated[str | OwnSource, PlainValidator(_source)]
ModelOption = Annotated[str | Callable[..., object], PlainValidator(_model)]
