"""The grammar of --link and --compute: how fast each node's link is, and how long a node computes in a round.

--link [NAME=]UP[/DOWN],LATENCY[,LOSS]     1mbit,100ms   1mbit/10mbit,100ms,1%   node-3=64kbit,600ms
--compute [NAME=]TIME                      2s   300ms   node-3=10s

Entries are separated by spaces; on the command line the option may be repeated. An entry with a name is for that node
alone, one without is for all others. Knows no node and no message.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from p2p_tally.errors import ConfigError

LINK = (
    "[NAME=]UP[/DOWN],LATENCY[,LOSS], as in 1mbit,100ms or node-3=64kbit/1mbit,600ms,1%; from 100bit to 1000gbit, "
    "and at most 60min"
)
COMPUTE = "[NAME=]TIME, as in 2s or node-3=300ms; at most 1440min"

_ENTRY = re.compile(r"(?:([^=\s]+)=)?([^=\s]+)")
_NUMBER = r"(\d+(?:\.\d+)?)"
_RATE = re.compile(_NUMBER + r"(bit|kbit|mbit|gbit)")
_TIME = re.compile(_NUMBER + r"(ms|s|min)")
_LOSS = re.compile(_NUMBER + r"%")

RATES = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
NANOSECONDS = {"ms": 10**6, "s": 10**9, "min": 60 * 10**9}

# Slower, and a long run would not fit into the clock's nanoseconds; faster is no thin link.
LEAST_RATE, MOST_RATE = 100, 10**12
MOST_LATENCY, MOST_COMPUTE = 60 * NANOSECONDS["min"], 1440 * NANOSECONDS["min"]

# Half of all packets: with more there is no connection that anybody would use.
MOST_LOSS = 50.0

Value = TypeVar("Value")


@dataclass(frozen=True)
class Link:
    """One node's link. Between two nodes latency and loss are the mean of both ends'."""

    up: int  # bits a second; 0: no limit
    down: int
    latency: int  # nanoseconds, one way
    loss: float = 0.0  # the share of packets that is lost


NO_LIMIT = Link(0, 0, 0)


def check_links(text: str) -> str:
    """The text, if it keeps the grammar; otherwise a ValueError."""
    _entries(text, _link)
    return text


def check_compute(text: str) -> str:
    _entries(text, _compute)
    return text


def links_of(text: str, names: Sequence[str]) -> list[Link]:
    """The link of each of these nodes. A node that no entry is for has a link without limits."""
    return _by_name("--link", text, _entries(text, _link), names, NO_LIMIT)


def compute_of(text: str, names: Sequence[str]) -> list[int | None]:
    """The nanoseconds that each of these nodes computes in a round; None: as long as it is measured."""
    return _by_name("--compute", text, _entries(text, _compute), names, None)


def _by_name(
    flag: str, text: str, entries: dict[str, Value], names: Sequence[str], others: Value | None
) -> list[Value]:
    for name in entries:
        if name and name not in names:
            listed = ", ".join(names[:4]) + (f", ... {names[-1]}" if len(names) > 4 else "")
            raise ConfigError(f"{flag} {text}: no node has the name {name}; accepted are {listed}")
    general = entries.get("", others)
    return [entries.get(name, general) for name in names]  # type: ignore[misc]


def _entries(text: str, read: Callable[[str], Value]) -> dict[str, Value]:
    """What is given for each name; for all others under the empty name."""
    found: dict[str, Value] = {}
    for part in text.split():
        written = _ENTRY.fullmatch(part)
        name = (written and written[1]) or ""
        if written is None or name in found:
            raise ValueError("no entry, or a second one for the same nodes")
        found[name] = read(written[2])
    if not found:
        raise ValueError("nothing is given")
    return found


def _link(text: str) -> Link:
    rates, *rest = text.split(",")
    up, slash, down = rates.partition("/")
    if len(rest) not in (1, 2):
        raise ValueError("no rate and latency")
    loss = 0.0
    if len(rest) == 2:
        share = _LOSS.fullmatch(rest[1])
        if share is None or float(share[1]) > MOST_LOSS:
            raise ValueError("no loss")
        loss = float(share[1]) / 100
    return Link(_rate(up), _rate(down if slash else up), _nanoseconds(rest[0], MOST_LATENCY), loss)


def _rate(text: str) -> int:
    written = _RATE.fullmatch(text.lower())
    rate = round(float(written[1]) * RATES[written[2]]) if written else 0
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise ValueError("no rate")
    return rate


def _compute(text: str) -> int:
    return _nanoseconds(text, MOST_COMPUTE)


def _nanoseconds(text: str, most: int) -> int:
    written = _TIME.fullmatch(text.lower())
    if written is None or float(written[1]) * NANOSECONDS[written[2]] > most:
        raise ValueError("no time")
    return round(float(written[1]) * NANOSECONDS[written[2]])
