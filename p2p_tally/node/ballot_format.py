"""Which ballots a federation writes: the learning side says what is sent, the protocol how."""

from p2p_tally.errors import ConfigError
from p2p_tally.learning.learner import Learner
from p2p_tally.learning.methods import Sends, method_of
from p2p_tally.protocol.ballots import BallotFormat, Form
from p2p_tally.protocol.messages import LONG_BALLOT, LONG_BALLOT_ROUNDS


def ballot_format(learner: Learner) -> BallotFormat:
    """How this learner's answers are written."""
    federation = learner.federation
    forms: dict[Sends, Form] = {
        Sends.NOTHING: "byte",
        Sends.VOTES: federation.ballot,
        Sends.TOP_K: "top-k",
        Sends.SOFT: "soft",
    }
    sent = method_of(federation).sends
    votes = learner.probes.votes_per_round
    ballots = BallotFormat(forms[sent], votes, learner.classes, federation.top_k, federation.soft_precision)
    if ballots.largest > LONG_BALLOT and federation.rounds > LONG_BALLOT_ROUNDS:
        raise ConfigError(
            f"--rounds {federation.rounds}: accepted is at most {LONG_BALLOT_ROUNDS} where ballots are longer than "
            f"{LONG_BALLOT} bytes; here they are up to {ballots.largest}"
        )
    return ballots
