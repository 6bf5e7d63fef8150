"""Going on from checkpoints, also from one that was written with other options.

A checkpoint is of use wherever its parameters fit. It says with which values it was written, so the operator is told
what has changed, and what could not be carried over. Whether peers agree with each other is decided elsewhere.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from p2p_tally.errors import ConfigError
from p2p_tally.ids import NodeName, file_name
from p2p_tally.learning.learner import Learner
from p2p_tally.node.position import Position
from p2p_tally.node.service.checkpoint import Checkpoint, Checkpoints
from p2p_tally.protocol.handshake import TOLD, fields_digest

log = logging.getLogger(__name__)

# What makes it another task or another model, and how that is said. `schema` and `names` are known to checkpoints only.
FIXED = {
    "schema": "it is of another model (--model): of {0}, here {1}",
    "classes": "it is of other data (--data): of {0} classes, here {1}",
    "probe set": "it is of other probes (--probes)",
    "frozen parameters": "it is of other frozen parameters (--init, --train)",
}
MEMBERS = "names"
# Digests say nothing to a person, and what peers need not share changes nothing here.
UNSPOKEN = {*TOLD, *FIXED, MEMBERS, "members", "parameters", "first parameters", "graph", "ring"}
# What is known of voters by their rank: with other members the ranks are those of others.
BY_RANK = "voter.reliability."


def described(fields: Iterable[tuple[str, str]], learner: Learner, members: Iterable[str]) -> dict[str, str]:
    """What a checkpoint says of the run that wrote it."""
    flat = learner.parameters
    return {**dict(fields), "schema": f"{len(flat)} parameters ({flat.schema[:16]})", MEMBERS: " ".join(members)}


def misfit(kept: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Why a checkpoint is of no use; None if it is."""
    for field, words in FIXED.items():
        if field in kept and field in now and kept[field] != now[field]:
            return words.format(kept[field], now[field])
    return None


def changes(kept: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What has changed since a checkpoint was written, each in a few words."""
    names = [name for name in now if name in kept and name not in UNSPOKEN]
    told = [f"{name} {kept[name]} -> {now[name]}" for name in names if kept[name] != now[name]]
    before, here = kept.get(MEMBERS, "").split(), now.get(MEMBERS, "").split()
    told += [f"{name} is no member any more" for name in before if name not in here]
    told += [f"{name} is a new member" for name in here if name not in before]
    if before == here and kept.get("graph") != now.get("graph"):
        told.append("the graph is another")
    return told


class Kept:
    """The checkpoints that one daemon can go on from."""

    def __init__(
        self,
        out: Path,
        name: NodeName,
        fields: tuple[tuple[str, str], ...],
        learner: Learner,
        members: Iterable[str],
        *,
        resume: bool,
    ) -> None:
        self._learner = learner
        self._values = values = described(fields, learner, members)
        self.checkpoints = Checkpoints(
            out / "checkpoints" / file_name(name), fields_digest(fields), values, lambda kept: misfit(kept, values)
        )
        rounds = self.checkpoints.rounds()
        if not resume and (rounds or self.checkpoints.refused):
            raise ConfigError(f"--out {out}: holds checkpoints of an earlier run; add --resume, or name another folder")
        if not rounds and self.checkpoints.refused:
            raise ConfigError(
                f"--resume: no checkpoint in {self.checkpoints.folder} fits: {self.checkpoints.refused}; "
                "begin anew with another --out"
            )
        last = learner.federation.rounds
        if rounds and rounds[-1] > last:
            raise ConfigError(f"--rounds {last}: the newest checkpoint in {out} is of round {rounds[-1]}; accepted is "
                              f"{rounds[-1]} or more")  # fmt: skip
        self.rounds = (0, *rounds)

    def load(self, round: int, position: Position) -> Checkpoint:
        """Go on from the checkpoint of a round, and log what is other than when it was written."""
        checkpoint = self.checkpoints.load(round)
        if checkpoint is None:
            raise ConfigError(f"--resume: checkpoint of round {round} in {self.checkpoints.folder} cannot be read")
        tensors, written_with = checkpoint.tensors, checkpoint.written_with
        changed = changes(written_with, self._values) if written_with else []
        if written_with and written_with.get(MEMBERS) != self._values[MEMBERS]:
            tensors = {key: value for key, value in tensors.items() if not key.startswith(BY_RANK)}
        not_carried = self._learner.restore(tensors)
        position.restore(checkpoint.round, checkpoint.notes)
        if changed:
            log.warning("since the checkpoint: %s", "; ".join(changed), extra={"event": "changed"})
        if not_carried:
            log.warning("not carried over: %s", "; ".join(not_carried), extra={"event": "not-carried-over"})
        return checkpoint
