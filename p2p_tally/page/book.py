"""All that a page shows, in bounded memory: what the run is, each node's state and curve, votes, what went wrong.

Everything that is added gets a serial number. `since` gives what is new after one, so that any number of viewers can
follow without a list of their own. A message may be taken twice or overlap the next: the result is the same.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from p2p_tally.page.series import Row, Series
from p2p_tally.page.verdict import judge
from p2p_tally.page.votes import Record, VoteRecords

KEPT_PROBLEMS = 100

State = dict[str, Any]


class _NodePages:
    """What is kept of one node."""

    def __init__(self) -> None:
        self.state: State = {}
        self.changed = 0  # serial number of the state
        self.points = Series()  # [round, accuracy, bytes of votes, of merges, of the rest]: bytes since the beginning
        self.merges = Series()  # [round]

    def put(self, serial: int, state: State) -> None:
        self.state, self.changed = state, serial


class Book:
    def __init__(self) -> None:
        self.serial = 0  # of what was added last
        self.about: dict[str, Any] = {}
        self._described = 0
        self._nodes: dict[str, _NodePages] = {}
        self._order = 0  # serial number of the last change of who is there
        self._votes = VoteRecords()
        self._problems: deque[tuple[int, dict[str, Any]]] = deque(maxlen=KEPT_PROBLEMS)

    # --- filling it

    def describe(self, about: Mapping[str, Any]) -> None:
        """What the run is: method, rounds, topology, classes, budget."""
        if about != self.about:
            self.about, self._described = dict(about), self._next()

    def put_state(self, name: str, state: State) -> None:
        node = self._node(name)
        if state != node.state:
            node.put(self._next(), state)

    def state_of(self, name: str) -> State:
        return self._nodes[name].state if name in self._nodes else {}

    def add_point(self, name: str, row: Row) -> None:
        self._node(name).points.add(self._next(), row)

    def add_merge(self, name: str, round: int) -> None:
        self._node(name).merges.add(self._next(), [round])

    def add_votes(self, record: Record, teller: str | None = None) -> None:
        if self._votes.add(self.serial + 1, record, teller):
            self._next()

    def add_problem(self, entry: dict[str, Any]) -> None:
        self._problems.append((self._next(), entry))

    def forget(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._order = self._next()

    def absorb(self, message: Mapping[str, Any], name: str) -> None:
        """Take over what the book of this node gave as `whole` or `since`: what it says of itself, and the votes."""
        if name in message.get("nodes", {}):
            self.put_state(name, message["nodes"][name])
        for row in message.get("points", {}).get(name, []):
            self.add_point(name, row)
        for (round,) in message.get("merges", {}).get(name, []):
            self.add_merge(name, round)
        for record in message.get("votes", []):
            self.add_votes(record, name)
        for entry in message.get("problems", []):
            told = entry | {"node": name}
            if all(told != kept for _, kept in self._problems):
                self.add_problem(told)

    # --- reading it

    def whole(self) -> dict[str, Any]:
        """Everything."""
        message = self._after(0)
        return {**message, "whole": True, "about": self.about, "present": list(self._nodes)}

    def since(self, serial: int) -> dict[str, Any]:
        """What is new after this serial number. Empty where nothing is."""
        if serial == self.serial:
            return {}
        message = self._after(serial)
        if self._described > serial:
            message["about"] = self.about
        if self._order > serial:
            message["present"] = list(self._nodes)
        return message

    def _after(self, serial: int) -> dict[str, Any]:
        message: dict[str, Any] = {
            "serial": self.serial,
            "verdict": judge(self._states(), self.about.get("rounds", 0)).as_json(),
            "nodes": {name: node.state for name, node in self._nodes.items() if node.changed > serial},
            "votes": self._votes.since(serial),
            "problems": [entry for added, entry in self._problems if added > serial],
        }
        for key in ("points", "merges"):
            rows = {name: getattr(node, key).since(serial) for name, node in self._nodes.items()}
            message[key] = {name: new for name, new in rows.items() if new}
        return message

    def _states(self) -> dict[str, State]:
        return {name: node.state for name, node in self._nodes.items() if node.state}

    def _next(self) -> int:
        self.serial += 1
        return self.serial

    def _node(self, name: str) -> _NodePages:
        if name not in self._nodes:
            self._nodes[name] = _NodePages()
            self._order = self._next()
        return self._nodes[name]
