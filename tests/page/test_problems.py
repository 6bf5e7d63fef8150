"""Warnings of the log become entries of the list."""

import logging
from typing import Any

from p2p_tally.page.problems import MESSAGE_LENGTH, ProblemHandler


def test_warnings_and_errors_are_told() -> None:
    told: list[dict[str, Any]] = []
    log = logging.Logger("test")
    log.addHandler(ProblemHandler(told.append))
    log.info("nothing")
    log.warning("the %s", "<b>one</b>", extra={"peer": "node-2", "round": 4, "event": "lost"})
    try:
        raise ValueError("inside")
    except ValueError:
        log.exception("x" * 1000)
    first, second = told
    assert first | {"time": 0} == {
        "time": 0, "level": "warning", "node": None, "message": "the <b>one</b>", "peer": "node-2", "round": 4,
        "event": "lost",
    }  # fmt: skip
    assert second["level"] == "error" and len(second["message"]) == MESSAGE_LENGTH
