"""What went wrong lately: the warnings of a process, the newest few of them, each cut to a length."""

import logging
from collections.abc import Callable
from typing import Any

# Longer messages are cut: a peer can cause long ones.
MESSAGE_LENGTH = 300

OnProblem = Callable[[dict[str, Any]], None]


def problem(time: float, level: str, message: str, node: str | None, **more: Any) -> dict[str, Any]:
    """One entry of the list. `time`: seconds since 1970."""
    return {"time": time, "level": level, "node": node, "message": message[:MESSAGE_LENGTH], **more}


class ProblemHandler(logging.Handler):
    """Passes warnings and errors of the log on, as entries of the list."""

    def __init__(self, tell: OnProblem) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        fields = {name: getattr(record, name) for name in ("round", "peer", "event") if hasattr(record, name)}
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            message = f"{message}: {record.exc_info[1]!r}"
        self._tell(problem(record.created, record.levelname.lower(), message, getattr(record, "node", None), **fields))
