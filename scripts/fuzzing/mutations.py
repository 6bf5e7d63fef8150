"""Inputs that are almost right: valid ones with something changed. Owns no decoder, and knows none.

Everything follows from the random generator that is passed in, so that an input can be made again from its number.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgpack

# Makes an input from valid ones.
Mutator = Callable[[random.Random, Sequence[bytes]], bytes]

NUMBERS = (
    0, 1, 2, 3, 7, 8, 15, 16, 127, 128, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**48, 2**53,
    2**63 - 1, 2**63, 2**64 - 1, -1, -2, -128, -(2**31), -(2**63),
)  # fmt: skip
LONGEST = 400_000  # bytes of an input: more than the longest frame


# --- any bytes


def change_bytes(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """A valid input with one to four places changed."""
    data = bytearray(rng.choice(seeds))
    for _ in range(1 + int(rng.random() * rng.random() * 4)):
        _CHANGES[int(rng.random() * len(_CHANGES))](rng, data, seeds)
    return bytes(data[:LONGEST])


def _place(rng: random.Random, data: bytearray) -> int:
    return int(rng.random() * len(data)) if data else 0


def _flip(rng: random.Random, data: bytearray, _seeds: Sequence[bytes]) -> None:
    if data:
        data[_place(rng, data)] ^= 1 << int(rng.random() * 8)


def _set(rng: random.Random, data: bytearray, _seeds: Sequence[bytes]) -> None:
    if data:
        data[_place(rng, data)] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF, int(rng.random() * 256)))


def _cut(rng: random.Random, data: bytearray, _seeds: Sequence[bytes]) -> None:
    del data[_place(rng, data) :]


def _drop(rng: random.Random, data: bytearray, _seeds: Sequence[bytes]) -> None:
    start = _place(rng, data)
    del data[start : start + 1 + int(rng.random() * 8)]


def _insert(rng: random.Random, data: bytearray, _seeds: Sequence[bytes]) -> None:
    start = _place(rng, data)
    data[start:start] = rng.randbytes(1 + int(rng.random() * 8))


def _repeat(rng: random.Random, data: bytearray, _seeds: Sequence[bytes]) -> None:
    start = _place(rng, data)
    data[start:start] = data[start : start + 1 + int(rng.random() * 64)] * int(1 + rng.random() * 4)


def _number(rng: random.Random, data: bytearray, _seeds: Sequence[bytes]) -> None:
    width = rng.choice((1, 2, 4, 8))
    value = rng.choice(NUMBERS) % (1 << 8 * width)
    start = _place(rng, data)
    data[start : start + width] = value.to_bytes(width, rng.choice(("big", "little")))


def _splice(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    other = rng.choice(seeds)
    start = int(rng.random() * (len(other) + 1))
    data[_place(rng, data) :] = other[start:]


def _noise(rng: random.Random, data: bytearray, _seeds: Sequence[bytes]) -> None:
    """Other bytes in the same number: what has the right length is read further."""
    start = _place(rng, data)
    length = min(len(data) - start, 1 + int(rng.random() * 64))
    data[start : start + length] = rng.randbytes(length)


_CHANGES = (_flip, _flip, _set, _set, _cut, _drop, _insert, _repeat, _number, _splice, _noise, _noise)


# --- values with a structure


def _odd_value(rng: random.Random, more: Sequence[Callable[[random.Random], Any]]) -> Any:
    choices = (
        lambda r: r.choice(NUMBERS),
        lambda r: r.choice(NUMBERS),
        lambda r: int(r.random() * 300),
        lambda _: None,
        lambda r: r.random() < 0.5,
        lambda r: r.choice((0.0, 1.0, -1.5, 1e308, float("inf"), float("nan"))),
        lambda r: "x" * r.choice((0, 1, 64, 65, 1024, 1025, 5000)),
        lambda r: r.choice(("\0", "\ud800", "a\nb", "☃" * 20, "../x", "node-0", "1e9999")),
        lambda r: [[]] * r.choice((0, 1, 8, 9, 100)),
        _nested,
        *more,
    )
    return rng.choice(choices)(rng)


def _nested(rng: random.Random) -> Any:
    value: Any = 1
    for _ in range(rng.choice((2, 20, 200))):
        value = [value]
    return value


def _changed(rng: random.Random, value: Any, more: Sequence[Callable[[random.Random], Any]], deep: bool = False) -> Any:
    """A value of which one part, however deep, is another."""
    if isinstance(value, list | tuple) and value and (not deep or rng.random() < 0.8):
        items = list(value)
        place = int(rng.random() * len(items))
        what = rng.random()
        if what < 0.75:
            items[place] = _changed(rng, items[place], more, deep=True)
        elif what < 0.85:
            del items[place]
        elif what < 0.95:
            items.insert(place, _odd_value(rng, more))
        else:
            items = items * rng.choice((2, 9, 300))
        return items
    if isinstance(value, dict) and value and (not deep or rng.random() < 0.85):
        found = dict(value)
        key = rng.choice(list(found))
        what = rng.random()
        if what < 0.85:
            found[key] = _changed(rng, found[key], more, deep=True)
        elif what < 0.95:
            del found[key]
        else:
            found["more"] = _odd_value(rng, more)
        return found
    if isinstance(value, bytes) and rng.random() < 0.7:
        return change_bytes(rng, [value])
    if isinstance(value, str) and rng.random() < 0.6:
        return change_bytes(rng, [value.encode("utf-8", "replace")]).decode("latin-1")
    return _odd_value(rng, more)


# --- msgpack

_PACKED = (
    lambda r: r.randbytes(r.choice((0, 1, 8, 16, 32, 33, 64, 4096, 4097, 16_385))),
    lambda r: bytes(r.choice((262_144, 262_145))) if r.random() < 0.01 else b"",
    lambda r: msgpack.ExtType(int(r.random() * 127), r.randbytes(r.choice((0, 1, 4, 16)))),
    lambda _: {1: 2},
)


def change_msgpack(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Half of the time a field changed, otherwise bytes."""
    if rng.random() < 0.4:
        return change_bytes(rng, seeds)
    value = _changed(rng, msgpack.unpackb(rng.choice(seeds), strict_map_key=False), _PACKED)
    try:
        packed: bytes = msgpack.packb(value, unicode_errors="surrogatepass")
    except (OverflowError, ValueError, TypeError):  # a number that msgpack cannot write
        return change_bytes(rng, seeds)
    return packed


# --- JSON

_LONG_NUMBER = 10**400
_TEXTS = (
    lambda _: {"a": 1},
    lambda _: _LONG_NUMBER,
    lambda _: -_LONG_NUMBER,
    lambda r: "0" * r.choice((16, 32, 64, 96, 128)),
)


def changed_json(rng: random.Random, value: Any) -> Any:
    return _changed(rng, value, _TEXTS)


def change_json(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    if rng.random() < 0.3:
        return change_bytes(rng, seeds)
    if rng.random() < 0.005:
        return b"[" * rng.choice((900, 2000, 30_000))
    return json.dumps(changed_json(rng, json.loads(rng.choice(seeds)))).encode()
