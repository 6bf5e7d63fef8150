"""What neighbours exchange in a merge, as part of a method's row: over which links, which values, and how they mix.

Everything random is drawn from the federation's seed, the round and the two names, so sender and receiver know it
without a message. Functions of names, rounds and runs of parameters: no torch, no network, no model.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import derive_seed, name_key
from p2p_tally.learning import merging
from p2p_tally.learning.exchanges.code import Code

if TYPE_CHECKING:
    from torch import Tensor

    from p2p_tally.learning.own import Own
    from p2p_tally.topologies import Topology

# What a derived seed is below.
_SEEDS = 1 << 63


class Heard(NamedTuple):
    """What a neighbour sent of a run."""

    values: np.ndarray  # [k]
    places: np.ndarray | None  # [k], ascending: where in the run they belong; None: it sent the whole run
    weight: float


# (federation, sender, receiver, round): whether the sender sends in this merge.
Links = Callable[[Federation, str, str, int], bool]
# (federation, sender, receiver, round, number of the run, its length) -> which of its values travel.
Places = Callable[[Federation, str, str, int, int, int], np.ndarray]
# (exchange, federation, graph, member, round, those it hears) -> by vector, what it gives itself and each of them.
Weights = Callable[["Exchange", Federation, "Topology", str, int, Sequence[str]], Sequence[dict[str, float]]]
# (own run [n], its weight, what came) -> the run after the merge [n].
Mix = Callable[[np.ndarray, float, Sequence[Heard]], np.ndarray]

# (own and what came [1 + k, V W], the peer's own data, federation) -> the parameters after the merge [W].
Takes = Callable[["Tensor", "Own", Federation], "Tensor"]


def weighted(own: np.ndarray, weight: float, heard: Sequence[Heard]) -> np.ndarray:
    """The weighted sum of whole runs."""
    return merging.weighted_sum([own, *(one.values for one in heard)], [weight, *(one.weight for one in heard)])


def parameters_alone(_merge_step: Any, parameters: "Tensor") -> "Tensor":
    return parameters


@dataclass(frozen=True)
class Exchange:
    """How the neighbours of a merge exchange what they have."""

    links: Links
    weights: Weights
    mix: Mix = weighted
    places: Places | None = None  # None: every value travels
    gives: "Callable[[Any, Tensor], Tensor]" = parameters_alone  # (merge step, parameters [..., W]) -> [..., V W]
    vectors: int = 1  # V
    extra: int = 0  # values contributed behind each vector
    takes: "Takes | None" = None  # where the vectors that came are not mixed run by run
    keeps_total: bool = False  # the sum of a vector over all peers must stay: nothing may be bounded or left out
    bounds: bool = True  # what came may be drawn towards one's own values, as --robust-merge says
    code: Code | None = None  # how vectors travel; None: as float32
    # With a code: the merge step gets the mean of what travelled and, behind it, what coding kept of this peer's own
    # [..., 2 V W]. Without this what was kept is added to the mean.
    returns_kept: bool = False

    def __post_init__(self) -> None:
        if self.places is not None and self.code is not None:
            raise ConfigError(
                "an exchange with places and a code: accepted is one of the two; a code writes all values"
            )
        if self.extra and self.code is not None:
            raise ConfigError("an exchange with extra values and a code: accepted is one of the two")
        if self.returns_kept and (self.code is None or self.takes is not None):
            raise ConfigError("an exchange that returns what coding kept: accepted with a code, and without takes")


class Piece(NamedTuple):
    """A run of what is contributed [V W]: no run belongs to two vectors."""

    part: int  # its number
    run: slice
    vector: int

    @property
    def length(self) -> int:
        return int(self.run.stop - self.run.start)


def used_links(exchange: Exchange, federation: Federation, topology: "Topology", round: int) -> tuple[np.ndarray, ...]:
    """The ranks of senders and receivers [L] over the links that the merge of a round uses."""
    ends, others = topology.links(round)
    names = topology.members
    pairs = zip(ends.tolist(), others.tolist(), strict=True)
    used = np.fromiter((exchange.links(federation, names[a], names[b], round) for a, b in pairs), bool, len(ends))
    return ends[used], others[used]


def hears(exchange: Exchange, federation: Federation, topology: "Topology", member: str, round: int) -> list[str]:
    """The neighbours that send to a member in the merge of a round, in order of name."""
    near = topology.neighbours(member, round)
    return sorted((peer for peer in near if exchange.links(federation, peer, member, round)), key=name_key)


def tells(exchange: Exchange, federation: Federation, topology: "Topology", member: str, round: int) -> list[str]:
    """The neighbours that a member sends to, in order of name."""
    near = topology.neighbours(member, round)
    return sorted((peer for peer in near if exchange.links(federation, member, peer, round)), key=name_key)


def sent_count(exchange: Exchange, federation: Federation, length: int) -> int:
    """How many values of a run of this length travel over a link: the same number over each."""
    if exchange.places is None:
        return length
    return len(exchange.places(federation, "", "", 0, 0, length))


# --- draws from the federation's seed


def drawn_below(chance: float, seed: int, *purpose: str | int) -> bool:
    """Whether something happens that has this chance."""
    return chance >= 1 or derive_seed(seed, *purpose) < chance * _SEEDS


def drawn_places(share: float, length: int, seed: int, *purpose: str | int) -> np.ndarray:
    """A share of the places of a run, at least one, ascending. By raw random numbers, which numpy never changes."""
    count = min(length, max(1, math.ceil(share * length)))
    if count == length:
        return np.arange(length)
    keys = np.random.PCG64(derive_seed(seed, *purpose)).random_raw(length)
    return np.sort(np.argpartition(keys, count - 1)[:count])


def both_ways(federation: Federation, one: str, other: str, round: int) -> bool:
    """A link that is drawn for both directions at once, with the chance --links-used."""
    first, second = sorted((one, other), key=name_key)
    return drawn_below(federation.links_used, federation.seed, "link", round, first, second)


def one_way(federation: Federation, sender: str, receiver: str, round: int) -> bool:
    """A link each of whose directions is drawn for itself, with the chance --links-used."""
    return drawn_below(federation.links_used, federation.seed, "way", round, sender, receiver)


def pieces(parameters: int, vectors: int, cut: Callable[[slice], Sequence[slice]]) -> Iterator[Piece]:
    """The runs of V vectors one after the other; `cut` cuts a vector into runs."""
    part = 0
    for vector in range(vectors):
        for run in cut(slice(vector * parameters, (vector + 1) * parameters)):
            yield Piece(part, run, vector)
            part += 1
