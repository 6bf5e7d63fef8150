"""What one process needs besides its federation, and option files.

All option sets read and write TOML: flat keys, the same as the options of the command line.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import tomli_w
from pydantic import Field, model_validator

from p2p_tally.errors import ConfigError
from p2p_tally.federation import Federation
from p2p_tally.option_types import MAX_CLASSES, METHOD_NAMES, BallotCoding
from p2p_tally.options import Options, option

EngineName = Literal["exact", "stacked", "auto"]

RAY_WORKERS = r"^ray:[1-9]\d{0,5}$"

__all__ = [
    "MAX_CLASSES",
    "METHOD_NAMES",
    "BallotCoding",
    "DaemonSettings",
    "EngineName",
    "Federation",
    "NodeSettings",
    "ServiceSettings",
    "Settings",
    "SimulationSettings",
    "parse_options",
    "read_options",
    "write_options",
]


class NodeSettings(Options):
    """What belongs to one process and no peer needs to know."""

    device: str = option(
        "auto",
        "where the model lives",
        "auto, cpu, cuda or cuda:N",
        metavar="DEVICE",
        group="Running",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
    )
    out: Path | None = option(
        None, "run folder [default: runs/ and a name made from the run]", "a folder", metavar="FOLDER"
    )
    data_root: Path | None = option(
        None,
        "folder of the data sets cifar10, cifar100, stl10 and wikitext2",
        "a folder",
        metavar="FOLDER",
        group="Data",
    )
    download: bool = option(
        False,
        "fetch such a data set into that folder where it is missing",
        "given or not given",
        metavar="FLAG",
        group="Data",
    )
    log: Literal["tensorboard", "wandb", "mlflow", "none"] = option(
        "none",
        "show the figures of each evaluated round there too: tensorboard, wandb or mlflow",
        "tensorboard, wandb, mlflow or none",
        metavar="TOOL",
        group="Running",
    )


class SimulationSettings(NodeSettings):
    """What a whole federation in one process needs besides."""

    engine: EngineName = option(
        "exact",
        "exact: node by node, bit for bit as launched; stacked: all peers as one batched model, equal to about the "
        "last digits; auto: the faster, and says which",
        "exact, stacked or auto",
        metavar="ENGINE",
    )
    workers: Annotated[int, Field(ge=1)] | Annotated[str, Field(pattern=RAY_WORKERS)] | None = option(
        None,
        "threads that peers are spread over, or Ray's actors (stacked); the same bits [default: exact: 1; stacked: one "
        "thread for each core]",
        "a whole number from 1 to the number of nodes, or ray:K for K actors of Ray",
        metavar="W|ray:K",
        group="Running",
    )
    checkpoint_seconds: float = option(
        60.0,
        "least seconds between checkpoints of the run; 0: none",
        "a number from 0",
        metavar="S",
        group="Running",
        ge=0,
    )

    @property
    def actors(self) -> int | None:
        """How many actors of Ray hold the peers; None: they are in this process."""
        return int(self.workers.removeprefix("ray:")) if isinstance(self.workers, str) else None

    @property
    def threads(self) -> int | None:
        """How many threads work, where the operator says so."""
        return None if isinstance(self.workers, str) else self.workers


class ServiceSettings(NodeSettings):
    """What a node over real sockets needs besides, alone or launched with others."""

    barrier_timeout: Annotated[float, Field(gt=0)] | Literal["auto"] = option(
        "auto",
        "seconds to wait for a neighbour; auto: follows the waits seen",
        "a positive number of seconds, or auto",
        metavar="S|auto",
        group="Running",
    )
    longest_wait: float | None = option(
        None,
        "seconds that no wait for a neighbour exceeds, whatever it sends [default: 600; ten times --barrier-timeout if "
        "that is a number]",
        "a positive number of seconds",
        metavar="S",
        group="Running",
        gt=0,
    )
    slow_peers: Literal["share", "await"] | None = option(
        None,
        "a neighbour in time but much slower than most is awaited: share: for a fifth of the time; await: always "
        "[default: share; launch: await]",
        "share or await",
        metavar="share|await",
        group="Running",
    )
    quorum: int | None = option(
        None,
        "least votes, own included, to distill on [default: a majority of the neighbourhood]",
        "a whole number from 1",
        metavar="Q",
        group="Running",
        ge=1,
    )
    least_present: int | None = option(
        None,
        "least members present, this node included, to play a round; with fewer it pauses until they are back "
        "[default: a majority of the members, and two; launch: 1]",
        "a whole number from 1",
        metavar="N",
        group="Running",
        ge=1,
    )
    alone: bool = option(
        False, "go on however few members are present: --least-present 1", "given or not given", metavar="FLAG",
        group="Running",
    )  # fmt: skip
    checkpoint_every: int | None = option(
        None,
        "rounds between checkpoints; 0: none [default: a twentieth of the rounds]",
        "a whole number from 0",
        metavar="ROUNDS",
        group="Running",
        ge=0,
    )
    log_format: Literal["text", "json"] = option(
        "text", "form of the log lines", "text or json", metavar="FORM", group="Running"
    )

    @model_validator(mode="after")
    def _one_number(self) -> Self:
        if self.alone and self.least_present not in (None, 1):
            raise ValueError(f"--alone: means --least-present 1; accepted is one of the two, not {self.least_present}")
        return self

    @property
    def chosen_presence(self) -> int | None:
        """The least number of members present; None: it follows from how many there are."""
        return 1 if self.alone else self.least_present


class DaemonSettings(ServiceSettings):
    """What one daemon needs besides: who it is, and where it and its peers are."""

    name: str | None = option(
        None, "this node's name, as its peers write it [default: its address]", "a short plain name", metavar="NAME"
    )
    listen: str = option("127.0.0.1:7001", "where peers reach this node", "HOST:PORT", metavar="HOST:PORT")
    peers: str = option(
        "",
        "its neighbours; with --topology all the other members",
        "HOST:PORT or NAME=HOST:PORT, separated by commas; with #FINGERPRINT behind each, links are TLS by these keys",
        metavar="ADDRESS,...",
    )
    home: Path | None = option(
        None,
        "this node's home: its key, and its federation if it has founded or joined one [default: ~/.p2p-tally]",
        "a folder",
        metavar="DIR",
    )
    dial_only: bool = option(
        False,
        "nobody can dial this node: it listens nowhere, and dials all others",
        "given or not given",
        metavar="FLAG",
        group="Running",
    )
    rank: int | None = option(
        None,
        "cut --data into --nodes shards and take this one [default: all of --data is this node's own]",
        "a whole number from 0, below --nodes",
        metavar="I",
        ge=0,
    )
    admin: str | None = option(
        None,
        "where a live page (/), /healthz, /readyz, /status and /metrics are served; unix:/PATH: for this user alone",
        "HOST:PORT or unix:/PATH",
        metavar="ADDRESS",
    )
    admin_token_file: Path | None = option(
        None,
        "file with a token that must be sent to --admin: Authorization: Bearer TOKEN",
        "a file that others cannot read",
        metavar="FILE",
        group="Running",
    )
    address: str | None = option(
        None,
        "where other members dial this node [default: --listen]",
        "HOST:PORT",
        metavar="HOST:PORT",
        group="Running",
    )
    resume: bool = option(False, "go on from the last checkpoint in --out", "given or not given", metavar="FLAG")
    insecure: bool = option(
        False, "listen beyond this machine without transport security", "given or not given", metavar="FLAG"
    )

    def as_launched(self) -> Self:
        """As a launcher starts it: who dies in a launch is not started again, and all are the operator's own."""
        own = {"least_present": self.least_present or 1, "slow_peers": self.slow_peers or "await"}
        return self.model_copy(update=own)


def read_options(path: Path, flag: str = "--config") -> dict[str, Any]:
    """The flat keys of a TOML file, hyphens taken for underscores. `flag`: what the operator named it by."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{flag} {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag} {path}: not a TOML file: {error}") from None
    return {key.replace("-", "_"): value for key, value in values.items()}


Settings = TypeVar("Settings", bound=NodeSettings)


def parse_options(
    values: Mapping[str, Any], settings: type[Settings], *, source: str = ""
) -> tuple[Federation, Settings]:
    """Flat keys, as from a file or the command line, as the two option sets they belong to.

    One file serves every command: keys that only another command reads are passed over.
    """
    known = {*Federation.model_fields, *SimulationSettings.model_fields, *DaemonSettings.model_fields}
    unknown = sorted(set(values) - known)
    if unknown:
        where = f"{source}: " if source else ""
        raise ConfigError(f"{where}unknown key {unknown[0]!r}; known keys: {', '.join(sorted(known))}")
    problem = {key: value for key, value in values.items() if key in Federation.model_fields}
    own = {key: value for key, value in values.items() if key in settings.model_fields}
    return Federation.parse(problem, source=source), settings.parse(own, source=source)


def write_options(path: Path, federation: Federation, settings: NodeSettings) -> None:
    """A TOML file that gives the same two option sets back. The run folder itself is not part of it."""
    values = federation.model_dump(exclude_none=True, mode="json")
    values |= settings.model_dump(exclude_none=True, exclude={"out"}, mode="json")
    path.write_text(tomli_w.dumps(values), encoding="utf-8")
