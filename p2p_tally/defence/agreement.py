"""How members come to agree on what each of them said, although some tell different members different things.

In the first exchange each member sends its value to all. In each further one it sends on what it has been told. With e
exchanges among more than 3 (e - 1) members, up to e - 1 liars leave all others with the same values, whatever they do:
the oral messages of Lamport, Shostak and Pease. A value that is missing is empty. Pure: who sends the bytes is not
known here.
"""

from collections.abc import Iterable, Mapping
from itertools import permutations

from p2p_tally.errors import FrameError

# What was said: by the first of a path, as told by the second, as told by the third.
Path = tuple[int, ...]

# No value is longer; its length takes one byte.
MOST_BYTES = 255
# From this many members on there are two exchanges: what is passed on in a third grows with the square of the members.
MANY = 17
MOST_EXCHANGES = 3
# Of a place in a list of values.
PLACE_BYTES = 2


def exchanges(members: int, liars: int) -> int:
    """How many exchanges such a federation makes: one more than the liars borne, and two or three."""
    return MOST_EXCHANGES if liars >= 2 and members < MANY else 2


class Agreement:
    """One member's side of it. Members are numbered in order of name."""

    def __init__(self, members: int, own: int, value: bytes, exchanges: int) -> None:
        assert len(value) <= MOST_BYTES
        self._members, self._own, self._exchanges = members, own, exchanges
        self._said: dict[Path, bytes] = {(own,): value}

    def message(self, exchange: int) -> bytes:
        """What this member sends to all in exchange 0, 1, ..."""
        return _encode([self._told(path) for path in self._paths(exchange, self._own)])

    def receive(self, exchange: int, messages: Mapping[int, bytes]) -> dict[int, FrameError]:
        """What the others sent in this exchange; who sent something else than a list of values, and what was wrong."""
        refused = {}
        for member, data in messages.items():
            try:
                values = _decode(data, len(self._paths(exchange, member)))
            except FrameError as error:
                refused[member] = error
                continue
            self._said |= {
                (*path, member): value for path, value in zip(self._paths(exchange, member), values, strict=True)
            }
        return refused

    def _paths(self, exchange: int, sender: int) -> list[Path]:
        """Whose words a member passes on in this exchange; in the first its own."""
        others = [member for member in range(self._members) if member != sender]
        return [()] if not exchange else list(permutations(others, exchange))

    def _told(self, path: Path) -> bytes:
        return self._said.get(path or (self._own,), b"")

    def values(self) -> list[bytes]:
        """The value of every member, the same at all that do not lie."""
        return [self._resolved((member,)) for member in range(self._members)]

    def _resolved(self, path: Path) -> bytes:
        if len(path) == self._exchanges or path == (self._own,):
            return self._said.get(path, b"")
        told = [
            self._said.get(path, b"") if member == self._own else self._resolved((*path, member))
            for member in range(self._members)
            if member not in path
        ]
        return majority(told, len(told)) or b""


def majority(values: Iterable[bytes], of: int) -> bytes | None:
    """The value that more than half of so many have."""
    found = list(values)
    return next((value for value in set(found) if 2 * found.count(value) > of), None)


def message_bytes(value: int) -> int:
    """The length of a message if all values are the same, and have this length."""
    return 1 + value


def _encode(values: list[bytes]) -> bytes:
    """The most common value, then the place and the value of each other one. If nobody lies and nobody is missing, all
    are the same, and the message is short."""
    usual = max(sorted(set(values)), key=values.count, default=b"")
    others = [(place, value) for place, value in enumerate(values) if value != usual]
    return _sized(usual) + b"".join(place.to_bytes(PLACE_BYTES, "big") + _sized(value) for place, value in others)


def _decode(data: bytes, count: int) -> list[bytes]:
    usual, rest = _next(data)
    values, last = [usual] * count, -1
    while rest:
        place = int.from_bytes(rest[:PLACE_BYTES], "big")
        if not last < place < count:
            raise FrameError(f"place {place} after {last} of {count} values", reason="field")
        values[place], rest = _next(rest[PLACE_BYTES:])
        last = place
    return values


def _sized(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def _next(data: bytes) -> tuple[bytes, bytes]:
    """The value that comes first, and what follows it."""
    if not data or len(data) < 1 + data[0]:
        raise FrameError(f"{len(data)} bytes are too few for a value", reason="field")
    return data[1 : 1 + data[0]], data[1 + data[0] :]
