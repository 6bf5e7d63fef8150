"""Which round does what: when the channel is open, what its loss weighs, when models merge, what is evaluated.

Each rule of the round stands here once; the node, the stacked engine and the byte counts all call it. Pure arithmetic
on a federation's fields: no torch, no clock. `resolve` fills in every default that depends on other fields.
"""

import logging
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, overload

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.about_probes import check_about_probes
from p2p_tally.learning.architectures import check_models
from p2p_tally.learning.methods import Sends, method_of, unread_options
from p2p_tally.learning.overlap import check_overlap
from p2p_tally.learning.second_model import check_second_model
from p2p_tally.learning.voting.tally_weights import tally_weights
from p2p_tally.option_types import Start

log = logging.getLogger(__name__)

# Fleiss' kappa from which agreement is called fair (Landis and Koch, 1977): from there a consensus counts in full.
FAIR = 0.2
LEAST_WEIGHT = 0.01


def resolve(federation: Federation, *, labelled: bool, cheap_to_evaluate: bool = True, classes: int = 2) -> Federation:
    """The federation with every open default filled in; `labelled`: the probes carry labels."""
    check_models(federation)
    check_about_probes(federation)
    check_second_model(federation)
    method = method_of(federation)
    labelled = labelled or method.sends.by_class  # own examples have labels
    merge_every = method.merge_every if federation.merge_every is None else federation.merge_every
    if not method.merges and merge_every:
        log.warning("--merge-every %s: the method %s never merges; ignored", merge_every, method.name)
        merge_every = 0
    for name in unread_options(federation):
        flag, value = "--" + name.replace("_", "-"), getattr(federation, name)
        log.warning("%s %s: the method %s does not read it; ignored", flag, value, method.name)
    if method.waits and isinstance(federation.warmup, int) and federation.warmup >= federation.rounds:
        log.warning(
            "--warmup %s: the channel never opens in %s rounds, so nobody learns from votes or probes",
            federation.warmup,
            federation.rounds,
        )
    tail = max(1, federation.rounds // 30) if federation.tail is None else federation.tail
    if federation.eval_every and math.gcd(federation.eval_every, max(1, merge_every)) > 1:
        log.warning(
            "--eval-every %s shares a factor with --merge-every %s: parts of the merge cycle are never evaluated",
            federation.eval_every,
            merge_every,
        )
    alpha = _alpha(federation, labelled)
    resolved = federation.model_copy(
        update={
            "warmup": _warmup(federation),
            "alpha": alpha,
            "merge_every": merge_every,
            "start": _start(federation, merge_every),
            "tally_weights": tally_weights(federation, alpha, classes),
            "tail": tail,
            "eval_every": federation.eval_every or _cadence(federation.rounds, tail, merge_every, cheap_to_evaluate),
        }
    )
    if federation.merge_when == "drift" and (method.distils_merged or not sends_ballots(resolved)):
        raise ConfigError(
            f"--merge-when drift: the method {federation.method} with --alpha {alpha:g} has no votes that tell when; "
            "accepted are tally, fedmd and rcfd with --alpha below 1"
        )
    if federation.soft_precision != "float32" and not _sends_probabilities(federation):
        alone = " with --top-k 1" if method.sends is Sends.TOP_K else ""
        raise ConfigError(
            f"--soft-precision {federation.soft_precision}: the method {federation.method}{alone} sends no "
            "probabilities; accepted are fedmd, feddf, and rcfd with --top-k above 1"
        )
    if federation.abstain and method.sends is not Sends.VOTES:
        raise ConfigError(
            f"--abstain {federation.abstain}: the method {federation.method} sends no votes; accepted is 0, or "
            "a method that sends votes, as tally"
        )
    if federation.inverse_agreement and (resolved.tally_weights == "reliability" or federation.abstain):
        raise ConfigError(
            f"--inverse-agreement {federation.inverse_agreement:g}: accepted is 0 with --tally-weights reliability or "
            "--abstain"
        )
    if federation.overlap:
        check_overlap(resolved, method, sends_ballots=sends_ballots(resolved))
    if federation.warmup == "auto" and not labelled:
        raise ConfigError("--warmup auto: the probes carry no labels to measure accuracy on; give a number of rounds")
    return resolved


def _sends_probabilities(federation: Federation) -> bool:
    """Whether a ballot has any in it. The one class of a top-1 answer is certain."""
    sent = method_of(federation).sends
    return sent is Sends.SOFT or (sent is Sends.TOP_K and federation.top_k > 1)


def _alpha(federation: Federation, labelled: bool) -> float:
    method = method_of(federation)
    if method.alpha is not None:
        if federation.alpha not in (None, method.alpha):
            log.warning(
                "--alpha %s: the method %s has its own, %s; ignored", federation.alpha, federation.method, method.alpha
            )
        alpha = method.alpha
    elif federation.alpha is not None:
        alpha = federation.alpha
    else:
        alpha = 0.5 if labelled else 0.0
    if alpha > 0 and method.learns_from_probes and not labelled:
        raise ConfigError(
            f"--alpha {alpha:g}: the probes carry no labels; accepted without labels is 0 (with --kl-decay T)"
        )
    return alpha


def _warmup(federation: Federation) -> int | Literal["auto"]:
    """A tenth of the rounds; none where the votes themselves tell how much they are worth."""
    if federation.warmup is not None:
        return federation.warmup
    return federation.rounds // 10 if federation.consensus_weight == "fixed" else 0


def _start(federation: Federation, merge_every: int) -> Start:
    """Peers that merge begin alike, unless the operator wants it otherwise."""
    method = method_of(federation)
    if method.common_start and federation.start == "own":
        raise ConfigError(f"--start own: the method {method.name} needs a common start; accepted is auto or common")
    if federation.start == "auto":
        return "common" if method.common_start or merge_every else "own"
    return federation.start


def begin_alike(federation: Federation) -> bool:
    """Whether all peers of a resolved federation begin with the same parameters."""
    assert federation.start != "auto"
    return federation.start == "common"


def _cadence(rounds: int, tail: int, merge_every: int, cheap: bool) -> int:
    """Rounds between evaluations: 1 where that is cheap, else so that about 20 fall into the tail, 300 into the run.

    A cadence that shares a factor with the merge cycle would see only some phases of it (always just after a
    merge, say), so the next coprime one is taken.
    """
    if cheap:
        return 1
    cadence = max(1, min(rounds // 300, tail // 20))
    while math.gcd(cadence, max(1, merge_every)) > 1:
        cadence += 1
    return cadence


@dataclass(frozen=True)
class Channel:
    """The consensus channel in one round: the loss is `label` x CE + `consensus` x KL."""

    label: float
    consensus: float

    @property
    def trains(self) -> bool:
        return self.label > 0 or self.consensus > 0

    @property
    def speaks(self) -> bool:
        """Ballots are sent only where they can change the loss."""
        return self.consensus > 0


CLOSED = Channel(0.0, 0.0)


def sends_ballots(federation: Federation) -> bool:
    """Whether peers ever send ballots. With alpha 1 the loss is that of the labels alone, which needs none."""
    return method_of(federation).sends is not Sends.NOTHING and federation.alpha != 1


def decay(round: int, warmup: int, window: int) -> float:
    """lambda_r = max(0, 1 - (r - W) / T); 1 throughout where no window is set."""
    return max(0.0, 1.0 - (round - warmup) / window) if window else 1.0


def channel(federation: Federation, round: int, warmup: int | None) -> Channel:
    """The channel of one round of a resolved federation. `warmup` None: an automatic warm-up not yet over."""
    method = method_of(federation)
    assert federation.alpha is not None
    if not method.learns_from_probes:
        return CLOSED
    if method.distils_merged and not merges(federation, round):
        return CLOSED  # there is no merged model to distil
    if not method.waits:
        warmup = 0
    if warmup is None or round <= warmup:
        return CLOSED
    # The consensus fades after a warm-up; a method that does not wait for one has nothing to fade from.
    fading = decay(round, warmup, federation.kl_decay) if method.waits else 1.0
    return Channel(federation.alpha, (1.0 - federation.alpha) * fading if sends_ballots(federation) else 0.0)


def waits_for_half(federation: Federation, warmup: int | None) -> bool:
    """Whether an automatic warm-up still lasts: then peers say how many probes they have right, and send no ballots."""
    method = method_of(federation)
    return warmup is None and method.waits and method.learns_from_probes


@overload
def channel_opens(right: Fraction, of: int, open_neighbours: int) -> bool: ...
@overload
def channel_opens(right: np.ndarray, of: np.ndarray | int, open_neighbours: np.ndarray | int) -> np.ndarray: ...
def channel_opens(
    right: Fraction | np.ndarray, of: int | np.ndarray, open_neighbours: int | np.ndarray
) -> bool | np.ndarray:
    """Whether an automatic warm-up ends with this round: more than half of the probes are right, or others are open.

    `right` of `of` probes, summed over all counts that a peer has, its own included; one peer's, or arrays of all
    peers' [N]. Whole numbers or fractions: a sum of floats depends on its order, and peers at exactly a half would
    open in different rounds. A neighbour that is open already sends a ballot instead of a count. So an opening spreads
    over a sparse graph by one hop a round, and over a mesh all peers open in the same one.
    """
    return (2 * right > of) | (open_neighbours > 0)


def quorum(neighbourhood: int, chosen: int | None = None) -> int:
    """The least votes to distill on: a majority of the closed neighbourhood, and two; or what the operator chose.

    One's own vote alone is no consensus.
    """
    return chosen or max(2, neighbourhood // 2 + 1)


def with_quorum(channel: Channel, votes: float, neighbourhood: int, chosen: int | None = None) -> Channel:
    """The channel with so many votes of the closed neighbourhood: below the quorum it learns from labels alone."""
    return Channel(channel.label, 0.0) if channel.speaks and votes < quorum(neighbourhood, chosen) else channel


def with_agreement(channel: Channel, kappa: float) -> Channel:
    """The channel where the votes themselves tell what they are worth."""
    return Channel(channel.label, channel.consensus * float(worth(np.float64(kappa))))


def worth(kappa: np.ndarray | np.float64) -> np.ndarray:
    """How much votes count that agree so far beyond chance: from nothing where they agree no more than by chance, to
    all of it at FAIR. A little is always left, so that the channel stays open; also where kappa is not a number."""
    return np.minimum(1.0, np.fmax(LEAST_WEIGHT, kappa / FAIR))


def merge_is_due(federation: Federation, round: int, last_merge: int, agreement: float | None) -> bool:
    """Whether peers merge at the end of this round: by the clock, or because their votes have drifted apart.

    `agreement` is that of the votes of this round; None where fewer than two were heard, which tell nothing.
    """
    if federation.merge_when == "clock":
        return merges(federation, round)
    assert federation.merge_every is not None
    if agreement is None:
        return False
    return 0 < federation.merge_every <= round - last_merge and agreement < federation.merge_threshold


def sends_changes(federation: Federation) -> bool:
    """Whether merges over a full mesh send rounded changes since the last merge, and not the parameters as they are."""
    rounded = federation.merge_precision != "float32" or federation.merge_top_k > 0
    return rounded and bool(federation.merge_every)


def merges(federation: Federation, round: int) -> bool:
    """Whether a resolved federation that keeps to the clock merges at the end of this round.

    With an automatic warm-up merges keep to the clock from the start: two nodes may see the channel open in
    different rounds, and both must merge in the same one.
    """
    method = method_of(federation)
    assert federation.merge_every is not None
    if not federation.merge_every or round % federation.merge_every:
        return False
    return not (method.waits and isinstance(federation.warmup, int)) or round > federation.warmup


def missed_a_merge(federation: Federation, finished: int, now: int) -> bool:
    """Whether the others may have merged in the rounds after `finished` up to `now`, which a node has not played.

    Its parameters are theirs again after the next merge. What a merge rule keeps besides, such as DiLoCo's momentum, is
    then averaged too.
    """
    if federation.merge_when == "drift":
        return bool(federation.merge_every) and finished < now  # only those who voted can know
    return any(merges(federation, round) for round in range(finished + 1, now + 1))


def next_voting_rounds(federation: Federation, round: int, count: int = 3) -> list[int]:
    """The next rounds, from this one on, in which nodes send each other ballots or counts; at most so many.

    No honest node can be further ahead than these: in each it waits for the messages of the others. While an
    automatic warm-up may last, every round is one.
    """
    if not isinstance(federation.warmup, int):
        return list(range(round, round + count))
    found: list[int] = []
    ahead = round
    while len(found) < count and ahead <= federation.rounds:
        if channel(federation, ahead, federation.warmup).speaks:
            found.append(ahead)
        ahead += 1
    return found or [round]


def exchanges(federation: Federation, round: int) -> bool:
    """Whether nodes may send each other anything in this round. While an automatic warm-up may last, they may."""
    if merges(federation, round):
        return True
    if isinstance(federation.warmup, int):
        return channel(federation, round, federation.warmup).speaks
    return method_of(federation).learns_from_probes


def evaluates(federation: Federation, round: int) -> bool:
    assert federation.eval_every is not None
    return round % federation.eval_every == 0 or round == federation.rounds


def in_tail(federation: Federation, round: int) -> bool:
    """Whether this evaluated round counts for the tail: in its window and on the cadence.

    The last round is always evaluated; off the cadence it would weigh the phase just after a merge too much.
    """
    assert federation.tail is not None and federation.eval_every is not None
    if federation.eval_every > federation.tail:
        return round == federation.rounds
    return round > federation.rounds - federation.tail and round % federation.eval_every == 0
