"""`--robust-merge`: which mean a merge takes."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from p2p_tally.defence import means
from p2p_tally.errors import ConfigError

# From this many members on, `auto` bears liars: with fewer, cutting values off leaves little to average.
AUTO_FROM = 5
# `auto` bears one liar among so many members.
MEMBERS_A_LIAR = 5

_MEANS: dict[str, Callable[[Sequence[np.ndarray], int], np.ndarray]] = {
    "trim": means.trimmed_mean,
    "median": lambda vectors, _: means.median(vectors),
    "clip": lambda vectors, _: means.clipped_mean(vectors),
    "nnm-trim": means.nearest_mixed_mean,
}
_NAMED = re.compile(r"([a-z-]+)(?::(\d+))?")


@dataclass(frozen=True)
class Rule:
    """A robust mean, and how many liars it should bear; for the mean itself `median` and `clip` do not need to know."""

    name: str
    liars: int

    def mean(self, vectors: Sequence[np.ndarray]) -> np.ndarray:
        """Of the vectors [n] of the members, in order of name."""
        return _MEANS[self.name](vectors, self.liars)

    @property
    def by_coordinate(self) -> bool:
        """Whether a value of the mean depends only on the members' values in the same place."""
        return self.name in ("trim", "median")


def rule_for(option: str, members: int) -> Rule | None:
    """The rule that the option names, among so many members; None: the plain mean."""
    if option == "auto":
        option = "off" if members < AUTO_FROM else f"trim:{members // MEMBERS_A_LIAR}"
    if option == "off":
        return None
    named = _NAMED.fullmatch(option)
    assert named is not None, "the option has been checked"
    return Rule(named[1], int(named[2]) if named[2] else members // MEMBERS_A_LIAR)


def check_rule(option: str, members: int) -> None:
    """Refuse to bear more liars than a mean can: a ConfigError."""
    rule = rule_for(option, members)
    if rule is not None and 2 * rule.liars >= members:
        raise ConfigError(
            f"--robust-merge {option}: accepted is an F of less than half of the {members} members, so at most "
            f"{(members - 1) // 2}"
        )
