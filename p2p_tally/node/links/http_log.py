"""The log of the HTTP server that links begin at.

aiohttp logs a traceback where a stranger sends something that is not HTTP, or closes its connection in the middle. That
is not an error of ours, so it becomes one line. Errors of our own keep their traceback.
"""

import asyncio
import logging

from aiohttp.http_exceptions import HttpProcessingError

_OF_STRANGERS = (HttpProcessingError, ConnectionError, asyncio.CancelledError)


class OneLine(logging.Filter):
    """Replaces the traceback of a stranger's error by one line, which the ration of the log applies to."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, _OF_STRANGERS):
            record.msg, record.args = "a connection that is no WebSocket: %s", (type(error).__name__,)
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.WARNING, "warning"
            record.event, record.reason = "stranger", "http"
        return True


http_log = logging.getLogger(__name__)
http_log.addFilter(OneLine())
