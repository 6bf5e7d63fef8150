"""One federation whose peers live in actors on a Ray cluster: `simulate --engine stacked --workers ray:K`.

Each actor keeps the parameters, moments, data and generators of its peers for the whole run. What one needs of another
goes between them through Ray's object stores; what the record needs comes here.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from p2p_tally.config import Federation
from p2p_tally.errors import DataError
from p2p_tally.learning.setup import Task
from p2p_tally.runner.ray.cluster import LostError, RayCluster, Resident, Resources, fetch, lost
from p2p_tally.runner.stacked.parts import Conductor, Part
from p2p_tally.runner.stacked.places import Apart
from p2p_tally.runner.stacked.shares import Shares


class ActorPart:
    """A `Part` in an actor."""

    def __init__(self, resident: Resident, returns: int) -> None:
        self.resident = resident
        self._returns = returns

    def start(self, what: str, *arguments: Any) -> list[Any]:
        return list(self.resident.call("start", what, *arguments, returns=self._returns))

    def go_on(self, *came: Any) -> list[Any]:
        return list(self.resident.call("go_on", *came, returns=self._returns))


class Crowd:
    """The actors of one run, and the place from which they are led."""

    def __init__(self, cluster: RayCluster, option: str, shares: Shares) -> None:
        self._cluster = cluster
        self._option = option
        self._shares = shares
        self._parts: list[ActorPart] = []
        self.conductor = Conductor(self._parts, self._fetch)
        self.place: Apart = self.conductor.place(shares)

    def start(self, given: Federation, task: Task, root: Path | None, download: bool) -> None:
        count = self._shares.count
        for here in range(count):
            arguments = given, root, download, str(Path.cwd()), here, count
            self._parts.append(ActorPart(self._cluster.resident(Part, *arguments), count + 2))
        for digest in self._fetch([part.resident.call("prepare") for part in self._parts]):
            if digest != task.probes.digest():
                raise DataError(f"{self._option}: a machine of the cluster has other probes; give all the same data")

    def end(self) -> None:
        for part in self._parts:
            part.resident.release()

    def _fetch(self, references: Sequence[Any]) -> Sequence[Any]:
        try:
            return fetch(references)
        except Exception as error:
            reason = lost(error)
            if reason is None:
                raise
            raise LostError(f"{self._option}: {self._who(error)} lost: {reason}") from None

    def _who(self, error: Exception) -> str:
        for part, held in zip(self._parts, self._shares.held, strict=False):
            if part.resident.is_lost(error):
                return f"the actor of node-{held[0]} to node-{held[-1]} is"
        return "an actor is"


@contextmanager
def crowd_on_ray(
    address: str, count: int, given: Federation, task: Task, root: Path | None = None, download: bool = False
) -> Iterator[Crowd]:
    """The peers of a task in so many actors. `given`: the federation as the operator gave it."""
    option, shares = f"--workers ray:{count}", Shares.of(task, count)
    with RayCluster(address, Resources("actor"), spread=True, at_once=count, asked=option) as cluster:
        crowd = Crowd(cluster, option, shares)
        try:
            crowd.start(given, task, root, download)
            yield crowd
            crowd.conductor.settle()
        finally:
            crowd.end()
