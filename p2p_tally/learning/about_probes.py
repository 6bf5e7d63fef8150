"""Options that read votes on probes: refused where answers are about the classes. No torch is imported here."""

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.methods import Sends, method_of

# What is accepted of each where there are no votes on probes.
_ACCEPTED: dict[str, tuple[object, ...]] = {
    "tally_weights": ("auto", "uniform", "mixing"),
    "consensus_weight": ("fixed",),
    "merge_when": ("clock",),
    "exam": (0,),
    "calibrate": (0.0,),
    "soft_precision": ("float32",),
}


def check_about_probes(federation: Federation) -> None:
    """Refuse options that need answers for probes of a method that gives none: a ConfigError."""
    method = method_of(federation)
    if not method.sends.by_class:
        return
    if method.sends is Sends.ANCHORS and (federation.join or federation.leave):
        raise ConfigError(
            f"--join and --leave: the method {method.name} sends its examples once, in the first round with answers; "
            "accepted with it are members that stay"
        )
    if federation.warmup == "auto":
        raise ConfigError(f"--warmup auto: the method {method.name} looks at no probes; accepted is a number of rounds")
    for name, accepted in _ACCEPTED.items():
        given = getattr(federation, name)
        if given not in accepted:
            raise ConfigError(
                f"--{name.replace('_', '-')} {given}: the method {method.name} answers for {method.sends.about}, not "
                f"for probes; accepted is {_said(accepted)}"
            )


def _said(accepted: tuple[object, ...]) -> str:
    return " or ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in accepted)
