"""Who takes part in which round, as the options --join and --leave say: members by name, or churn drawn from the seed.

Pure. Bad options are refused in one line, before anything starts.
"""

import random
import re
from collections.abc import Iterator, Sequence

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import derive_seed

# With churn, one node of so many is away.
AWAY = 5

_CHANGE = re.compile(r"([^@,\s]+)@(\d{1,9})")
_CHURN = re.compile(r"churn:(\d*\.?\d+)")


def member_epochs(federation: Federation, names: Sequence[str]) -> list[tuple[int, list[str]]]:
    """The first round of each epoch and who takes part in it, in the order of `names`. One epoch: nobody changes."""
    if federation.leave is not None and federation.leave.startswith("churn:"):
        return list(_joined_alike(_churn(federation, names)))
    joins = _changes("--join", federation.join, federation.rounds, names)
    leaves = _changes("--leave", federation.leave, federation.rounds, names)
    for name, round in leaves.items():
        if joins.get(name, 1) >= round:
            raise ConfigError(
                f"--leave {name}@{round}: it joins in round {joins[name]}; accepted is a later round than that"
            )
    firsts = sorted({1, *joins.values(), *leaves.values()})
    epochs = []
    for first in firsts:
        there = [name for name in names if joins.get(name, 1) <= first < leaves.get(name, federation.rounds + 1)]
        if not there:
            given = f"--join {federation.join}" if first == 1 else f"--leave {federation.leave}"
            raise ConfigError(
                f"{given}: nobody is left in round {first}; accepted is at least one member in each round"
            )
        epochs.append((first, there))
    return epochs


def changes_members(federation: Federation) -> bool:
    """Whether members join or leave by these options."""
    return federation.join is not None or federation.leave is not None


def _changes(flag: str, text: str | None, rounds: int, names: Sequence[str]) -> dict[str, int]:
    """The round that is given for each name."""
    found: dict[str, int] = {}
    for part in [] if text is None else text.split(","):
        written = _CHANGE.fullmatch(part.strip())
        if written is None:
            raise ConfigError(f"{flag} {text}: {part.strip()!r} is no NAME@ROUND")
        name, round = written[1], int(written[2])
        if name not in names:
            listed = ", ".join(names[:4]) + (f", ... {names[-1]}" if len(names) > 4 else "")
            raise ConfigError(f"{flag} {name}@{round}: no node has this name; accepted are {listed}")
        if not 2 <= round <= rounds:
            raise ConfigError(f"{flag} {name}@{round}: accepted is a round from 2 to the last, {rounds}")
        if name in found:
            raise ConfigError(f"{flag} {text}: {name} is given twice")
        found[name] = round
    return found


def _churn(federation: Federation, names: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Who takes part in each round. A fifth of the nodes is away. In each round the given share of the members leaves,
    and as many of those who are away come: who, is drawn from the federation's seed."""
    text = str(federation.leave)
    written = _CHURN.fullmatch(text)
    away = len(names) // AWAY
    there = len(names) - away
    if not away:
        raise ConfigError(f"--leave {text}: accepted with at least {AWAY} nodes, one of which is away")
    most = away / there
    if written is None or not float(written[1]) <= most:
        raise ConfigError(
            f"--leave {text}: accepted is churn:SHARE with a share from 0 to {most:g}, those who are away"
        )
    if federation.join is not None:
        raise ConfigError(f"--join {federation.join}: accepted without --leave {text}, which says who comes")
    share, draw = float(written[1]), random.Random(derive_seed(federation.seed, "churn"))
    order = list(names)
    draw.shuffle(order)
    present, absent = order[:there], order[there:]
    for round in range(1, federation.rounds + 1):
        # Whole members: the parts that are left over add up from round to round.
        leaving = int(share * there * (round - 1) + 1e-9) - int(share * there * max(0, round - 2) + 1e-9)
        gone, come = draw.sample(present, leaving), draw.sample(absent, leaving)
        present = [name for name in present if name not in gone] + come
        absent = [name for name in absent if name not in come] + gone
        chosen = set(present)
        yield round, [name for name in names if name in chosen]


def _joined_alike(rounds: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    """Epochs from rounds: those that follow each other with the same members are one."""
    before: list[str] = []
    for round, there in rounds:
        if there != before:
            yield round, there
        before = there
