"""Who hears of a daemon's evaluated rounds: the caller's function, the record file NAME.jsonl, and --log."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from p2p_tally.config import DaemonSettings, Federation, write_options
from p2p_tally.errors import ConfigError
from p2p_tally.ids import NodeName, file_name
from p2p_tally.json_lines import LineFile, json_value
from p2p_tally.node.service.recorder import OnLine
from p2p_tally.tracking.tracker import Tracker, open_tracker


class Listeners:
    """Passes each line to all of them. After a resume the record file is continued."""

    def __init__(self, on_line: OnLine | None) -> None:
        self._listeners = [on_line] if on_line is not None else []
        self._tracker: Tracker | None = None

    def keep_record(self, folder: Path, name: NodeName, federation: Federation, settings: DaemonSettings) -> None:
        """Write every line to a file too, with the options in a file beside it, and to what `--log` names."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lines = LineFile(folder / f"{file_name(name)}.jsonl")
            with suppress(ConfigError):  # an object of the program's own has no name that a file could hold
                write_options(folder / f"{file_name(name)}.toml", federation, settings)
        except OSError as error:
            what = f"--out {folder}: {error.strerror}"
            raise ConfigError(f"{what}; accepted is a folder that can be made and written in") from None
        self._tracker = open_tracker(settings.log, folder, file_name(name), federation)
        self._listeners += [lambda line: lines.add(json.dumps(json_value(line)) + "\n"), self._tracker.add]

    def tell(self, line: dict[str, Any]) -> None:
        for listener in self._listeners:
            listener(line)

    async def close(self) -> None:
        if self._tracker is not None:
            await asyncio.to_thread(self._tracker.close)
