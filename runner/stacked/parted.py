"""Which federations can be played in parts: those whose peers need of each other what the parts exchange."""

from collections.abc import Iterator

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.member_changes import changes_members
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.schedule import sends_changes
from p2p_tally.learning.setup import Task
from p2p_tally.learning.voting.reliability import weighs_by_reliability
from p2p_tally.runner.stacked.any_target import is_batched


def check_parted(task: Task, workers: str, device: str) -> None:
    """Refuse what takes all peers in one process, in one line."""
    for given, accepted in _asks_for_all(task.federation):
        raise ConfigError(f"--workers {workers} with {given}: accepted there is {accepted}, or --workers W for threads")
    if device != "cpu":
        raise ConfigError(f"--workers {workers} with --device {device}: accepted there is --device cpu")


def _asks_for_all(federation: Federation) -> Iterator[tuple[str, str]]:
    """What is given, and what is accepted in its place."""
    method = method_of(federation)
    if federation.attack is not None:
        yield f"--attack {federation.attack}", "no --attack"
    if changes_members(federation):
        yield "members that join or leave", "no --join and no --leave"
    if federation.overlap:
        yield "--overlap", "no --overlap"
    if federation.exam:
        yield f"--exam {federation.exam}", "--exam 0"
    if weighs_by_reliability(federation):
        yield "--tally-weights reliability", "--tally-weights uniform or mixing"
    if federation.robust_soft is not None:
        yield f"--robust-soft {federation.robust_soft}", "no --robust-soft"
    if federation.consensus_weight == "agreement":
        yield "--consensus-weight agreement", "--consensus-weight fixed or margin"
    if not is_batched(method, federation) or method.loss is not None or method.exchange is not None or method.second:
        yield (
            f"--method {method.name}",
            "tally, local, no-consensus, fedavg, fedprox, fedmd, rcfd, feddf, diloco or gflat",
        )
    if sends_changes(federation):
        yield "rounded or cut merges", "--merge-precision float32 and --merge-top-k 0"
    if federation.merge_every and federation.merge_when == "drift":
        yield "--merge-when drift", "--merge-when clock"
