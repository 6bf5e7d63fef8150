"""Log lines: one per event, with node, round and peer, as text or JSON. Repeated warnings are limited."""

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

# At most one line for the same event and peer in this many seconds; the next line says how many were dropped.
RATION_SECONDS = 10.0

FIELDS = ("event", "peer", "reason")


class RationFilter(logging.Filter):
    """Passes the first of many equal events, and later says how many it dropped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last: dict[tuple[Any, ...], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        event, peer = getattr(record, "event", None), getattr(record, "peer", None)
        if event is None or (record.levelno < logging.WARNING and peer is None):
            return True  # nobody else has caused it
        key = event, peer, getattr(record, "reason", None)
        now = self._clock()
        last, held = self._last.get(key, (-RATION_SECONDS, 0))
        if now - last < RATION_SECONDS:
            self._last[key] = last, held + 1
            return False
        self._last[key] = now, 0
        if held:
            record.msg = f"{record.msg} (and {held} more like it)"
        return True


class ContextFilter(logging.Filter):
    """Adds the node's name and round to every record."""

    def __init__(self, name: str, round: Callable[[], int]) -> None:
        super().__init__()
        self._name = name
        self._round = round

    def filter(self, record: logging.LogRecord) -> bool:
        record.node = self._name
        record.round = self._round()
        return True


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        peer = getattr(record, "peer", None)
        text = (
            f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower():7} {getattr(record, 'node', '-')} "
            f"round {getattr(record, 'round', '-')}{f' peer {peer}' if peer else ''}: {record.getMessage()}"
        )
        if not text.isprintable():  # it may contain text from a peer: no new lines, no terminal control codes
            text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
        return text if not record.exc_info else f"{text}\n{self.formatException(record.exc_info)}"


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": record.created,
            "level": record.levelname.lower(),
            "node": getattr(record, "node", None),
            "round": getattr(record, "round", None),
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(name: str, round: Callable[[], int], form: str, *others: logging.Handler) -> None:
    """Send the project's log to stderr, one line per event, and the same events to other handlers."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    for handler in (lines, *others):
        handler.addFilter(RationFilter())
        handler.addFilter(ContextFilter(name, round))
    root = logging.getLogger()
    root.handlers = [lines, *others]
    root.setLevel(logging.WARNING)
    logging.getLogger("p2p_tally").setLevel(logging.INFO)
