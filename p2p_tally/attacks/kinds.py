"""The kinds of attacks, and what --attack says: which members lie, in which ways. Knows no torch and no network.

The last COUNT members by rank lie. Several attacks may be given, also at one member: they follow each other in the
order given.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.ids import derive_seed
from p2p_tally.learning.member_changes import changes_members
from p2p_tally.learning.methods import Sends, method_of


class About(StrEnum):
    """What a kind of attack is about."""

    ANSWERS = "answers"  # what is answered for probes
    PARAMETERS = "parameters"  # what is contributed to a merge
    MESSAGES = "messages"  # who is sent what


@dataclass(frozen=True)
class Kind:
    """One kind of attack."""

    name: str
    about: About
    meaning: str
    argument: str = ""  # what stands between the kind and the count; "": nothing does
    default: str | None = None  # the argument where none is given; None: it must be given
    knows_others: bool = False  # needs what honest members answer or contribute in the same round


KINDS = {
    kind.name: kind
    for kind in (
        Kind("flip", About.ANSWERS, "names the next class in place of its own; probabilities move along"),
        Kind("targeted", About.ANSWERS, "names class B where it finds A", "A-B"),
        Kind("second-choice", About.ANSWERS, "names the class that it finds second likeliest"),
        Kind("copy", About.ANSWERS, "repeats what the first member answers", knows_others=True),
        Kind("random", About.ANSWERS, "names classes at random"),
        Kind("sign", About.PARAMETERS, "the negative of its parameters"),
        Kind("scale", About.PARAMETERS, "its parameters times FACTOR", "FACTOR", "100"),
        Kind(
            "alie", About.PARAMETERS, "the honest mean less FACTOR standard deviations, coordinate by coordinate",
            "FACTOR", "1.5", knows_others=True,
        ),
        Kind(
            "ipm", About.PARAMETERS, "the honest mean times minus FACTOR", "FACTOR", "0.5", knows_others=True,
        ),
        Kind("mimic", About.PARAMETERS, "what the first member contributes", knows_others=True),
        Kind(
            "selfish", About.PARAMETERS,
            "makes the mean what the first member has alone, and takes the honest mean for itself", knows_others=True,
        ),
        Kind("noise", About.PARAMETERS, "its parameters and normal noise of FACTOR times their size", "FACTOR", "10"),
        Kind("nan", About.PARAMETERS, "no numbers at all"),
        Kind("equivocate", About.MESSAGES, "every other peer gets other votes, announcements and parameters"),
        Kind("withhold", About.MESSAGES, "messages of a stage are not sent", "STAGE"),
    )
}  # fmt: skip

STAGES = ("vote", "announce", "scatter", "gather", "vector")


@dataclass(frozen=True)
class Attack:
    """One attack of a federation."""

    kind: Kind
    argument: str
    count: int  # the last so many members lie in this way

    @property
    def factor(self) -> float:
        return float(self.argument)

    @property
    def classes(self) -> tuple[int, int]:
        """A and B of A-B."""
        first, _, second = self.argument.partition("-")
        return int(first), int(second)


def attacks(federation: Federation) -> list[Attack]:
    """All attacks of a federation; those of nobody are left out. Or a ConfigError."""
    given = [] if federation.attack is None else federation.attack.split(",")
    return [attack for attack in (_parse(text, federation) for text in given) if attack.count]


def liars(federation: Federation) -> int:
    """How many members lie: the last ones."""
    return max((attack.count for attack in attacks(federation)), default=0)


def lies_of(federation: Federation, rank: int, about: About) -> list[Attack]:
    """What the member of this rank lies about in this way."""
    found = attacks(federation)
    return [one for one in found if one.kind.about is about and rank >= federation.nodes - one.count]


def knows_others(federation: Federation) -> bool:
    """Whether some liar must know what honest members answer or contribute."""
    return any(attack.kind.knows_others for attack in attacks(federation))


def withholds(federation: Federation) -> bool:
    """Whether messages may be missing: withheld, or not sent because two peers were told different things."""
    return any(attack.kind.about is About.MESSAGES for attack in attacks(federation))


def draw_seed(federation: Federation, rank: int, round: int) -> int:
    """The seed of what a liar draws in a round."""
    return derive_seed(federation.seed, "attack", rank, round)


# --- reading and checking


def _parse(text: str, federation: Federation) -> Attack:
    name, *rest = text.split(":")
    if name not in KINDS:
        raise ConfigError(f"--attack {text}: no such kind; accepted are {', '.join(KINDS)}")
    kind, count = KINDS[name], int(rest[-1])
    form = f"{name}:{kind.argument}:COUNT" if kind.argument else f"{name}:COUNT"
    argument = rest[0] if len(rest) == 2 else kind.default
    if (len(rest) == 2 and not kind.argument) or (kind.argument and argument is None):
        raise ConfigError(f"--attack {text}: accepted is {form}")
    if count >= federation.nodes:
        raise ConfigError(
            f"--attack {text}: accepted is a count below the {federation.nodes} nodes: one must be honest"
        )
    attack = Attack(kind, argument or "", count)
    if kind.argument and not _CHECKS[kind.argument](attack):
        raise ConfigError(f"--attack {text}: accepted is {form} with {_ACCEPTED[kind.argument]}")
    return attack


def _are_classes(attack: Attack) -> bool:
    first, dash, second = attack.argument.partition("-")
    return bool(dash) and first.isdecimal() and second.isdecimal() and first != second


def _is_number(attack: Attack) -> bool:
    try:
        return abs(attack.factor) < float("inf")
    except ValueError:
        return False


_CHECKS: dict[str, Callable[[Attack], bool]] = {
    "A-B": _are_classes,
    "FACTOR": _is_number,
    "STAGE": lambda attack: attack.argument in STAGES,
}
_ACCEPTED = {
    "A-B": "two different classes",
    "FACTOR": "a number",
    "STAGE": f"one of {', '.join(STAGES)}",
}


# Where members run, which kinds cannot be had there, and where they can.
Place = Literal["exact", "stacked", "daemon"]
_REFUSED: dict[Place, tuple[Callable[[Kind], bool], str]] = {
    "exact": (lambda _: False, ""),
    "stacked": (lambda kind: kind.about is About.MESSAGES, "a batched model sends no messages; accepted is exact"),
    "daemon": (lambda kind: kind.name == "copy", "a daemon votes before it hears others; accepted is simulate"),
}


def check_attacks(federation: Federation, where: Place, classes: int | None = None) -> None:
    """Refuse attacks that make no sense here, in one line. `classes`: of the data; None: not known yet."""
    for attack in attacks(federation):
        kind, text = attack.kind, f"--attack {attack.kind.name}"
        refused, why = _REFUSED[where]
        if refused(kind):
            raise ConfigError(f"{text}: {why}")
        if kind.about is About.ANSWERS and method_of(federation).sends is Sends.NOTHING:
            raise ConfigError(
                f"{text}: the method {federation.method} sends no answers; accepted are {_about_merges()}"
            )
        if kind.name == "copy" and method_of(federation).sends.by_class:
            about = method_of(federation).sends.about
            raise ConfigError(
                f"{text}: the method {federation.method} answers for {about}, not for probes; accepted is flip"
            )
        if kind.about is About.PARAMETERS and not _merges(federation):
            raise ConfigError(f"{text}: nothing is merged; accepted is a method that merges, and --merge-every above 0")
        if kind.name == "selfish" and _sends_changes(federation):
            raise ConfigError(
                f"{text}: it takes another result than the others, and changes are sent since a result that all have; "
                "accepted is --merge-precision float32 without --merge-top-k, and another method than fedkd"
            )
        if classes is not None and kind.argument == "A-B" and max(attack.classes) >= classes:
            raise ConfigError(f"{text}:{attack.argument}: accepted are classes from 0 to {classes - 1}")
        if kind.knows_others and where != "daemon":
            _check_knowing(federation, text)


def _sends_changes(federation: Federation) -> bool:
    exchange = method_of(federation).exchange
    of_the_row = exchange is not None and exchange.returns_kept
    return of_the_row or federation.merge_precision != "float32" or federation.merge_top_k > 0


def _check_knowing(federation: Federation, text: str) -> None:
    """A liar waits for what all honest members do in the same round: they must do it in that round."""
    if changes_members(federation):
        raise ConfigError(
            f"{text}: accepted without --join and --leave: not all honest members are there in all rounds"
        )
    for option, value in (("--warmup", federation.warmup), ("--merge-when", federation.merge_when)):
        if value in ("auto", "drift"):
            raise ConfigError(f"{text}: accepted without {option} {value}, by which members decide each for itself")


def _merges(federation: Federation) -> bool:
    """Also true of a federation whose defaults are not filled in yet."""
    every = federation.merge_every
    return method_of(federation).merges and (every is None or every > 0)


def _about_merges() -> str:
    return ", ".join(kind.name for kind in KINDS.values() if kind.about is About.PARAMETERS)
