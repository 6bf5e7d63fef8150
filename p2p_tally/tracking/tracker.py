"""The one door: a listener of evaluated rounds that passes their figures on, beside the run and never in its way.

The service is written to on a thread of its own, so a slow network holds up no round. One that fails ends no run.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from p2p_tally.errors import ConfigError
from p2p_tally.federation import Federation
from p2p_tally.tracking.figures import figures_of
from p2p_tally.tracking.services import SERVICES, Service, check_installed

log = logging.getLogger(__name__)


class Tracker:
    """Passes lines to a service, in order, until it is closed."""

    def __init__(self, kind: str, service: Service | None) -> None:
        self._kind = kind
        self._service = service
        self._worker = ThreadPoolExecutor(1, "tracker")

    def add(self, line: Mapping[str, Any]) -> None:
        """A line of rounds.jsonl or of NAME.jsonl."""
        if self._service is not None:
            self._worker.submit(self._write, line["round"], figures_of(line))

    def close(self) -> None:
        """Returns when the service has all figures."""
        if self._service is not None:
            self._worker.submit(self._end)
        self._worker.shutdown()

    def _write(self, round: int, figures: Mapping[str, float]) -> None:
        if self._service is not None:
            try:
                self._service.write(round, figures)
            except Exception as error:  # whatever the service raises: the run is worth more than its picture
                self._give_up(error)

    def _end(self) -> None:
        if self._service is not None:
            try:
                self._service.close()
            except Exception as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        what = f"{type(error).__name__}: {error}"
        log.warning("--log %s has failed, and gets no more: %s", self._kind, what, extra={"event": "log-failed"})
        self._service = None


def open_tracker(kind: str, folder: Path | None, name: str, federation: Federation) -> Tracker:
    """The tracker that `--log` asks for; with `none`, one that does nothing. `name`: what the run is called there."""
    if kind == "none":
        return Tracker(kind, None)
    check_installed(kind)
    options = {key: _shown(getattr(federation, key)) for key in type(federation).model_fields}
    try:
        return Tracker(kind, SERVICES[kind](folder, name, options))
    except ConfigError:
        raise
    except Exception as error:  # not logged in, no such server: what the service says is what helps
        raise ConfigError(f"--log {kind}: cannot be opened: {type(error).__name__}: {error}") from error


def _shown(value: Any) -> str | int | float:
    """An option as a service can keep it: an object of the user's own by its name."""
    return value if isinstance(value, str | int | float) else str(getattr(value, "__name__", value))
