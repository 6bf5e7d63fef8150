"""Options that do not go with a second model at each peer. No torch is imported here."""

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.member_changes import changes_members
from p2p_tally.learning.methods import method_of


def check_second_model(federation: Federation) -> None:
    """Refuse them in one line: a ConfigError."""
    method = method_of(federation)
    if method.second is None:
        return
    says = f"the method {method.name} keeps a second model at each peer"
    if changes_members(federation):
        raise ConfigError(f"--join and --leave: {says}, which nobody hands over; accepted are members that stay")
    if federation.balance:
        raise ConfigError(
            f"--balance {federation.balance:g}: {says}, and trains both by a loss of its own; accepted is 0"
        )
    if "," in federation.mentor:
        raise ConfigError(f"--mentor {federation.mentor}: accepted is one item of --model, without a comma")
