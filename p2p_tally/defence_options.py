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
        "KIND:COUNT with one of flip, targeted:A-B, second-choice, copy, random, sign, scale, alie, ipm, mimic, "
        "selfish, noise, nan, equivocate, withhold:STAGE; several separated by commas",
        metavar="KIND:COUNT,...",
        group="Measuring",
        pattern=rf"^{ATTACK}(,{ATTACK})*$",
    )
    exam: int = option(
        0,
        "a voter whose votes are worse than chance in too many rounds loses weight: judged by labelled probes, else by "
        "the node's own votes, trusted as far as K examples of its own that it does not train on allow; 0: nobody does",
        "a whole number from 0",
        metavar="K",
        group="Votes",
        ge=0,
    )
    robust_soft: str | None = option(
        None,
        "methods that send probabilities: the mean leaves out the F smallest and the F largest for each class",
        "trim:F with a whole number F",
        metavar="trim:F",
        group="Some methods",
        agreed=True,
        pattern=r"^trim:\d{1,9}$",
    )
