"""Reads a message that another process's hub has sent. What is read can be put into a book and shown.

A process may be of another version, or not ours at all: one that sends nonsense must not stop the page of all others.
So every field has a reader, which gives the value or raises a MessageError; sizes are bounded; and fields that are not
known here are left out.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

from p2p_tally.errors import MessageError
from p2p_tally.ids import NAME_LENGTH
from p2p_tally.page.problems import MESSAGE_LENGTH
from p2p_tally.page.votes import COMPARED, LONGEST_SIDE, SHOWN, TEXT_LENGTH

STATES = ("waiting", "playing", "paused", "done", "stopped", "unreachable")

# Limits of what one message may hold.
MOST_NODES = 4096
MOST_ROWS = 4096
LONGEST_WORDS = 4096  # a source of data may be a path
LARGEST = 2**53  # larger whole numbers are not exact in a browser

Reader = Callable[[Any], Any]


def read_message(message: Any) -> dict[str, Any]:
    """The parts of a message that are known here, or a MessageError that says what is wrong with it."""
    read: dict[str, Any] = MESSAGE(message)
    return read


# --- readers of single values


def _need(fine: bool, value: Any, what: str) -> None:
    if not fine:
        raise MessageError(f"{value!r:.40} is {what}")


def _whole(least: int, most: int = LARGEST) -> Reader:
    def read(value: Any) -> int:
        _need(type(value) is int and least <= value <= most, value, f"no whole number from {least} to {most}")
        return int(value)

    return read


def _number(value: Any) -> float | int:
    fine = type(value) in (int, float) and abs(value) <= LARGEST  # NaN is not
    _need(fine, value, "no number")
    return value  # type: ignore[no-any-return]


def _text(longest: int, shortest: int = 0) -> Reader:
    def read(value: Any) -> str:
        _need(
            isinstance(value, str) and shortest <= len(value) <= longest, value, f"no text of up to {longest} letters"
        )
        return str(value)

    return read


def _one_of(*accepted: str) -> Reader:
    def read(value: Any) -> Any:
        _need(value in accepted, value, f"none of {', '.join(accepted)}")
        return value

    return read


# --- readers of what is put together


def _or_none(reader: Reader) -> Reader:
    return lambda value: None if value is None else reader(value)


def _row(*readers: Reader) -> Reader:
    def read(value: Any) -> list[Any]:
        _need(isinstance(value, list) and len(value) == len(readers), value, f"no list of {len(readers)}")
        return [reader(one) for reader, one in zip(readers, value, strict=True)]

    return read


def _list(reader: Reader, most: int) -> Reader:
    def read(value: Any) -> list[Any]:
        _need(isinstance(value, list) and len(value) <= most, value, f"no list of up to {most}")
        return [reader(one) for one in value]

    return read


def _by_name(reader: Reader) -> Reader:
    def read(value: Any) -> dict[str, Any]:
        _need(isinstance(value, dict) and len(value) <= MOST_NODES, value, f"no object of up to {MOST_NODES} names")
        return {_name(name): _at(name, reader, one) for name, one in value.items()}

    return read


def _object(needed: Mapping[str, Reader], **others: Reader) -> Reader:
    """An object with the fields that are needed, and those others that it has."""
    readers = {**needed, **others}

    def read(value: Any) -> dict[str, Any]:
        _need(isinstance(value, dict), value, "no object")
        for key in needed:
            _need(key in value, key, "missing")
        return {key: _at(key, reader, value[key]) for key, reader in readers.items() if key in value}

    return read


def _at(key: str, reader: Reader, value: Any) -> Any:
    try:
        return reader(value)
    except MessageError as error:
        raise MessageError(f"{key:.40}: {error}") from None


# --- what a message is

_count = _whole(0)
_class = _whole(-1)  # -1: none
_name = _text(NAME_LENGTH, shortest=1)
_words = _text(LONGEST_WORDS)

_side = _whole(1, LONGEST_SIDE)
_picture = _object({"width": _side, "height": _side, "channels": _whole(1, 3), "pixels": _text(4 * LONGEST_SIDE**2)})
_writing = _object({"text": _text(TEXT_LENGTH + 1)})


def _view(value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and "text" in value:
        text: dict[str, Any] = _writing(value)
        return text
    view: dict[str, Any] = _picture(value)
    try:
        pixels = base64.b64decode(view["pixels"], validate=True)
    except (binascii.Error, ValueError):
        raise MessageError("pixels: no base64") from None
    size = view["width"] * view["height"] * view["channels"]
    _need(len(pixels) == size, len(pixels), f"not {size}, the bytes of the picture")
    return view


_budget = _object({"soft_round": _number, "warmup": _count, "merge": _number, "merge_every": _whole(1)})
_about = _object(
    {},
    own=_name,
    method=_words,
    rounds=_count,
    nodes=_count,
    shown=_count,
    topology=_words,
    data=_words,
    model=_words,
    classes=_count,
    budget=_budget,
)
_state = _object(
    {
        "state": _one_of(*STATES),
        "round": _count,
        "accuracy": _or_none(_number),
        "missing": _list(_name, MOST_NODES),
        "links": _by_name(_row(_words, _number, _number)),  # its state; bytes sent, received
    },
    phase=_words,
    why=_words,
    pace=_or_none(_number),
    still=_number,
)
_votes = _object(
    {
        "round": _count,
        "votes": _by_name(_list(_class, COMPARED)),
        "labels": _or_none(_list(_class, COMPARED)),
        "views": _list(_or_none(_view), SHOWN),
    }
)
_problem = _object(
    {"time": _number, "level": _words, "message": _text(MESSAGE_LENGTH)},
    node=_or_none(_name),
    peer=_or_none(_words),
    event=_or_none(_words),
    round=_or_none(_count),
)
MESSAGE = _object(
    {},
    about=_about,
    nodes=_by_name(_state),
    points=_by_name(_list(_row(_count, _or_none(_number), _number, _number, _number), MOST_ROWS)),
    merges=_by_name(_list(_row(_count), MOST_ROWS)),
    votes=_list(_votes, MOST_ROWS),
    problems=_list(_problem, MOST_ROWS),
)
