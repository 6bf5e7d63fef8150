"""How a federation encodes ballots and merges: from its options to the formats of the protocol."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.methods import Sends, method_of
from p2p_tally.learning.schedule import begin_alike
from p2p_tally.protocol.ballots import BallotFormat, Form
from p2p_tally.protocol.changes import ChangeFormat
from p2p_tally.protocol.frames import MARGIN, Limits
from p2p_tally.protocol.list_messages import LIST_BYTES
from p2p_tally.protocol.messages import LONG_BALLOT, LONG_BALLOT_ROUNDS


def ballot_form(federation: Federation) -> Form | None:
    """The form of ballots; None if the method sends no answers."""
    forms: dict[Sends, Form] = {
        Sends.VOTES: federation.ballot,
        Sends.TOP_K: "top-k",
        Sends.SOFT: "soft",
        Sends.SOFT_BY_CLASS: "soft-by-class",
        Sends.FEATURES_BY_CLASS: "features-by-class",
        Sends.ANCHORS: "anchors",
    }
    return forms.get(method_of(federation).sends)


def ballot_format(federation: Federation, votes: int, classes: int, features: int = 0) -> BallotFormat:
    """The format of a ballot with this many votes; or with a row for each class, where answers are about classes.
    `features`: how many the model has, where they are sent; or how many values an input has, where examples are."""
    form = ballot_form(federation) or "byte"
    sends = method_of(federation).sends
    rows = federation.probes_per_round if sends is Sends.ANCHORS else classes if sends.by_class else votes
    ballots = BallotFormat(
        form, rows, classes, federation.top_k, federation.soft_precision, bool(federation.abstain), features
    )
    if ballots.largest > LONG_BALLOT and federation.rounds > LONG_BALLOT_ROUNDS:
        raise ConfigError(
            f"--rounds {federation.rounds}: accepted is at most {LONG_BALLOT_ROUNDS} where ballots are longer than "
            f"{LONG_BALLOT} bytes; here they are up to {ballots.largest}"
        )
    return ballots


def check_sendable(federation: Federation, ballots: BallotFormat, queue: int) -> None:
    """Refuse ballots that do not fit a link's queue of so many bytes: the first one would end the link."""
    if ballots.largest + MARGIN > queue:
        raise ConfigError(
            f"--probes-per-round {federation.probes_per_round}: {ballots.count} answers of --method "
            f"{method_of(federation).name} are {ballots.largest} bytes; "
            f"accepted over a link is at most {queue - MARGIN}"
        )


def merge_format(federation: Federation) -> ChangeFormat:
    """The format of the parameters of a merge, or of their changes: see `schedule.sends_changes`."""
    return ChangeFormat(federation.merge_precision, federation.merge_top_k)


def message_limits(federation: Federation, ballots: BallotFormat, members: int, *, listed: bool = False) -> Limits:
    """The limits for frames, from the longest message of this federation. `listed`: it has a members' list."""
    largest = max(ballots.largest, LIST_BYTES) if listed else ballots.largest
    return Limits.of(largest, members, merging=bool(federation.merge_every))


def format_since(base: np.ndarray, format: ChangeFormat) -> ChangeFormat:
    """The format of changes since this base. Since zeros, the change is the model itself: all values are sent."""
    return format if base.any() else format.dense


def merge_formats(federation: Federation) -> Iterator[ChangeFormat]:
    """The format of each merge over a full mesh, one after the other, if no merge fails. The base of the first merge is
    the common initial model, or zeros if the peers do not have one."""
    format = merge_format(federation)
    yield format if begin_alike(federation) else format.dense
    yield from repeat(format)
