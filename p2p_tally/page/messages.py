"""Checks a message that another process's hub has sent. What passes can be put into a book and shown.

A process may be of another version, or not ours at all: one that sends nonsense must not stop the page of all others.
"""

from typing import Any

from p2p_tally.errors import PeerError
from p2p_tally.ids import NAME_LENGTH

STATES = ("waiting", "playing", "done", "stopped", "unreachable")

# Limits of what one message may hold.
MOST_NODES = 4096
MOST_ROWS = 4096


class MessageError(PeerError):
    reason = "page"


def check_message(message: Any) -> dict[str, Any]:
    """The message, or a MessageError that says what is wrong with it."""
    _need(isinstance(message, dict), "is no object")
    for name, state in _named(message, "nodes"):
        _need(_is_state(state), f"has a state of {name!r:.40} that is none")
    for key, width in (("points", 5), ("merges", 1)):
        for name, rows in _named(message, key):
            fine = isinstance(rows, list) and len(rows) <= MOST_ROWS and all(_is_row(row, width) for row in rows)
            _need(fine, f"has {key} of {name!r:.40} that are none")
    for record in _listed(message, "votes"):
        _need(_is_vote_record(record), "has votes that are none")
    for entry in _listed(message, "problems"):
        _need(_is_problem(entry), "has a problem that is none")
    _need(isinstance(message.get("about", {}), dict), "does not say what it is about")
    found: dict[str, Any] = message
    return found


def own_name(message: dict[str, Any]) -> str | None:
    """The node that the sender is, where this message says it."""
    own = message.get("about", {}).get("own")
    if own is None:
        return None
    _need(_is_name(own), f"is of a node without a name: {own!r:.40}")
    return str(own)


def _need(fine: bool, what: str) -> None:
    if not fine:
        raise MessageError(f"it {what}")


def _named(message: dict[str, Any], key: str) -> list[tuple[str, Any]]:
    values = message.get(key, {})
    fine = isinstance(values, dict) and len(values) <= MOST_NODES and all(map(_is_name, values))
    _need(fine, f"has {key} that are not by name")
    return list(values.items())


def _listed(message: dict[str, Any], key: str) -> list[Any]:
    values = message.get(key, [])
    _need(isinstance(values, list) and len(values) <= MOST_ROWS, f"has {key} that are no list")
    return list(values)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= NAME_LENGTH


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_state(state: Any) -> bool:
    return (
        isinstance(state, dict)
        and state.get("state") in STATES
        and _is_whole(state.get("round"))
        and all(state.get(key) is None or _is_number(state[key]) for key in ("accuracy", "pace", "still"))
        and _are(state.get("missing", []), _is_name)
        and _are(state.get("links", {}), _is_name)
        and all(_is_link(link) for link in state.get("links", {}).values())
        and all(isinstance(state.get(key, ""), str) for key in ("phase", "why"))
    )


def _are(values: Any, kind: Any) -> bool:
    return isinstance(values, list | dict) and len(values) <= MOST_NODES and all(map(kind, values))


def _is_link(link: Any) -> bool:
    return isinstance(link, list) and len(link) == 3 and isinstance(link[0], str) and all(map(_is_number, link[1:]))


def _is_row(row: Any, width: int) -> bool:
    """A round, then numbers; an accuracy that is not known is null."""
    return (
        isinstance(row, list)
        and len(row) == width
        and _is_whole(row[0])
        and all(value is None or _is_number(value) for value in row[1:])
    )


def _is_vote_record(record: Any) -> bool:
    return (
        isinstance(record, dict)
        and _is_whole(record.get("round"))
        and isinstance(record.get("votes"), dict)
        and _are(record["votes"], _is_name)
        and all(_are(votes, _is_whole) for votes in record["votes"].values())
        and (record.get("labels") is None or _are(record["labels"], _is_whole))
        and isinstance(record.get("views"), list)
        and all(view is None or _is_view(view) for view in record["views"])
    )


def _is_view(view: Any) -> bool:
    if not isinstance(view, dict):
        return False
    if "text" in view:
        return isinstance(view["text"], str)
    return isinstance(view.get("pixels"), str) and all(
        _is_whole(view.get(key)) for key in ("width", "height", "channels")
    )


def _is_problem(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and _is_number(entry.get("time"))
        and all(isinstance(entry.get(key), str) for key in ("level", "message"))
        and all(entry.get(key) is None or isinstance(entry[key], str) for key in ("node", "peer", "event"))
    )
