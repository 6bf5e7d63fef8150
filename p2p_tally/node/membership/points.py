"""The points at which a process may die while the members change: before and after each file, before each message.

Nothing happens here. A test puts a function in the place of `at`, which ends the process at one of the points.
"""

from collections.abc import Callable

FILES = (
    "identity.pem",
    "identity-next.pem",
    "probes.npz",
    "federation.toml",
    "node.toml",
    "members.jsonl",
    "invitation",
    "request",
    "outcome",
)
MESSAGES = ("join", "admitted", "request", "list", "catch-up")

POINTS = (
    *(f"{when} {file}" for file in FILES for when in ("before", "after")),
    *(f"sending {message}" for message in MESSAGES),
)


def _pass_by(point: str) -> None:
    assert point in POINTS, point


at: Callable[[str], None] = _pass_by


def reached(point: str) -> None:
    """This point is reached now."""
    at(point)
