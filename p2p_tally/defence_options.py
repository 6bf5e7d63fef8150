"""Peers that lie, and what others do about their answers: the third part of a federation's options."""

from p2p_tally.options import option
from p2p_tally.voting_options import VotingOptions

# KIND:COUNT or KIND:ARGUMENT:COUNT, several separated by commas; attacks/kinds.py knows the kinds.
ATTACK = r"[a-z][a-z-]*(:[^:,\s]+)?:\d{1,9}"


class DefenceOptions(VotingOptions):
    """Who lies in an experiment, and rules for answers that bear liars."""

    attack: str | None = option(
        None,
        "for experiments: the last COUNT nodes lie in this way; results are those of the others",
        "KIND:COUNT with one of flip, targeted:A-B, second-choice, copy, random, sign, scale, alie, ipm, mimic, noise, "
        "nan, equivocate, withhold:STAGE; several separated by commas",
        metavar="KIND:COUNT,...",
        group="Measuring",
        pattern=rf"^{ATTACK}(,{ATTACK})*$",
    )
