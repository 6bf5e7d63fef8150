"""The wait before the first round: for whom, how long, and what the operator is told."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.node.links.addresses import Address
from p2p_tally.node.links.state import LinkState
from p2p_tally.node.position import Position
from p2p_tally.node.service import startup
from p2p_tally.node.service.startup import Startup
from p2p_tally.protocol import start_wait
from p2p_tally.protocol.majority import Basis, StartingPoint
from p2p_tally.protocol.messages import Hello
from p2p_tally.protocol.peers import Event, Roster
from p2p_tally.topologies import Schedule, Topology, build

ME, A, B, C = (NodeName(f"node-{rank}") for rank in range(4))

# What happens while the node waits, one after the other. A wait that outlasts them fails.
Happening = Callable[[], object]


class Links:
    """The links of a node that knows three others, and what becomes of them."""

    def __init__(self, *happenings: Happening) -> None:
        self.peers = {name: LinkState(Address("127.0.0.1", 9000)) for name in (A, B, C)}
        self.closing = False
        self.played = False
        self.looked_again = 0
        self._running: dict[NodeName, bool] = {}
        self._happenings = list(happenings)

    def up(self, peer: NodeName, *, running: bool = False) -> None:
        self.peers[peer].up()
        self._running[peer] = running

    def down(self, peer: NodeName) -> None:
        self.peers[peer].ended(idle=False)
        del self._running[peer]

    def then(self, *happenings: Happening) -> None:
        self._happenings += happenings

    def stop(self) -> None:
        self.closing = True

    def not_up(self) -> set[NodeName]:
        return {name for name, peer in self.peers.items() if peer.state != "up"}

    def needed(self) -> int:
        return len(self.peers)

    def hellos(self) -> list[Hello]:
        return [
            Hello(1, str(name), round=7, running=running, checkpoints=(0, 5), neighbours=(), digest="", fields=())
            for name, running in self._running.items()
        ]

    async def change(self, _until: float) -> None:
        assert self._happenings, "it still waits"
        self._happenings.pop(0)()

    def notify_change(self) -> None:
        self.looked_again += 1

    def play(self) -> None:
        self.played = True


class Beginner:
    """A node that is about to begin."""

    def __init__(
        self,
        topology: str | Topology = "mesh",
        patience: float | None = 1000.0,
        after: int = 0,
        *,
        has_played: bool = False,
    ) -> None:
        self.links: Any = Links()
        self.roster = Roster([A, B, C])
        self.gone: list[NodeName] = []
        step: Any = self
        position = Position(Federation(rounds=10, warmup=0))
        position.move_to(after)
        graph = build(topology, [ME, A, B, C]) if isinstance(topology, str) else topology
        self.startup = Startup(self.links, graph, step, position, lambda: patience, has_played)

    def link_down(self, peer: NodeName) -> None:
        self.gone.append(peer)

    async def begins_after(self, *happenings: Happening) -> list[NodeName]:
        """Wait while these things happen; whom it begins without."""
        self.links.then(*happenings)
        await self.startup.wait()
        assert not self.links.closing or not self.gone
        assert self.links.played
        return self.gone


async def test_it_begins_when_the_last_is_there() -> None:
    node = Beginner(patience=0.0)
    gone = await node.begins_after(lambda: node.links.up(C), lambda: node.links.up(A), lambda: node.links.up(B))
    assert gone == []


async def test_who_was_never_there_is_waited_for_however_short_the_patience() -> None:
    node = Beginner(patience=0.0)
    with pytest.raises(AssertionError, match="it still waits"):
        await node.begins_after(lambda: node.links.up(A), lambda: node.links.up(B), *[lambda: None] * 100)


async def test_one_that_was_there_and_is_gone_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    node = Beginner(patience=0.0)
    for peer in (A, B):
        node.links.up(peer)
    node.links.down(A)
    assert await node.begins_after(lambda: node.links.up(C)) == [A]
    assert [(record.event, record.peer) for record in caplog.records] == [("begun-without", A)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("patience", [1000.0, None])
async def test_but_not_before_its_time_is_up(patience: float | None) -> None:
    node = Beginner(patience=patience)
    for peer in (A, B, C):
        node.links.up(peer)
    node.links.down(A)
    assert await node.begins_after(lambda: None, lambda: node.links.up(A)) == []


def played_and_gone(node: Beginner, peer: NodeName) -> None:
    """It has begun and is gone, at its end or dead; or somebody else came in its name."""
    node.links.up(peer)
    node.roster[peer].plays_after(0)
    node.links.down(peer)
    node.roster[peer].on(Event.LINK_DOWN)


async def test_one_that_played_and_is_gone_costs_no_deadline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(startup, "LAST_DELAY", 0.0)
    node = Beginner(patience=1e9)
    played_and_gone(node, A)
    assert await node.begins_after(lambda: node.links.up(B), lambda: node.links.up(C)) == [A]
    assert events(caplog) == [("begun-without", "it is gone: beginning without it")]


async def test_but_one_more_attempt_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real peer may not have come yet: whoever said that it plays was somebody else."""
    monkeypatch.setattr(startup, "LAST_DELAY", 1e9)
    node = Beginner(patience=1e9)
    played_and_gone(node, A)
    assert await node.begins_after(*(lambda peer=peer: node.links.up(peer) for peer in (B, C, A))) == []


async def test_who_plays_has_met_its_neighbours_so_they_were_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """node-1 plays on a ring 0-1-2-3, so node-2 has been up; of node-3 nobody knows."""
    node = Beginner("ring", patience=0.0)
    node.links.up(A)
    node.links.up(C)
    node.roster[A].plays_after(0)
    assert await node.begins_after(lambda: node.links.up(B)) == []  # the next attempt to reach it is given its time
    monkeypatch.setattr(startup, "LAST_DELAY", 0.0)
    node = Beginner("ring", patience=0.0)
    node.links.up(A)
    node.links.up(C)
    node.roster[A].plays_after(0)
    assert await node.begins_after() == [B]
    node = Beginner("ring", patience=0.0)
    node.links.up(A)
    node.links.up(B)
    node.roster[A].plays_after(0)
    assert await node.begins_after(lambda: None, lambda: node.links.up(C)) == []


@pytest.mark.parametrize(("after", "gone"), [(0, []), (1, [B])])
async def test_where_the_graph_changes_they_have_met_those_of_the_round_to_come(
    after: int, gone: list[NodeName], monkeypatch: pytest.MonkeyPatch
) -> None:
    """node-1 plays: in odd rounds beside node-3, in even ones beside node-2."""
    monkeypatch.setattr(startup, "LAST_DELAY", 0.0)
    graph = Topology("drawn", [ME, A, B, C], Schedule(lambda phase: [(1, 3 - phase)], phases=2))
    node = Beginner(graph, patience=0.0, after=after)
    node.links.up(A)
    node.links.up(C)
    node.roster[A].plays_after(0)
    assert await node.begins_after(*[] if gone else [lambda: node.links.up(B)]) == gone


async def test_who_comes_to_others_at_play_gives_the_rest_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_wait, "LATE_SECONDS", 0.0)
    node = Beginner(patience=None)
    gone = await node.begins_after(lambda: node.links.up(A, running=True), lambda: node.links.up(B, running=True))
    assert gone == []  # node-3 may be on its way


@pytest.mark.parametrize("others", [[], [(B, False)]])
async def test_but_one_of_three_that_says_so_is_not_believed(
    others: list[tuple[NodeName, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_wait, "LATE_SECONDS", 0.0)
    node = Beginner(patience=0.0)
    for peer, running in [(A, True), *others]:
        node.links.up(peer, running=running)
    with pytest.raises(AssertionError, match="it still waits"):
        await node.begins_after(*[lambda: None] * 100)


async def test_who_has_played_before_waits_for_the_rest_as_for_any_that_were_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has checkpoints: the federation has begun, so those that do not come have died since."""
    monkeypatch.setattr(startup, "LAST_DELAY", 0.0)
    node = Beginner(patience=0.0, has_played=True)
    assert await node.begins_after(lambda: node.links.up(A, running=True)) == [B, C]
    node = Beginner(patience=0.0, has_played=True)
    with pytest.raises(AssertionError, match="it still waits"):  # all begin again
        await node.begins_after(lambda: node.links.up(A), *[lambda: None] * 100)


async def test_one_that_somebody_knows_to_be_gone_is_not_waited_for() -> None:
    node = Beginner(patience=None)
    node.links.up(A)
    node.links.up(B)
    assert await node.begins_after(lambda: None, lambda: node.startup.will_not_come(C)) == [C]
    assert node.links.looked_again == 1
    node = Beginner(patience=None)
    node.startup.will_not_come(C)
    node.links.up(C)  # it came all the same
    assert await node.begins_after(lambda: node.links.up(A), lambda: node.links.up(B)) == []


async def test_one_that_is_asked_to_stop_stops_waiting() -> None:
    node = Beginner(patience=None)
    node.startup.will_not_come(A)
    assert await node.begins_after(lambda: None, node.links.stop) == []


async def test_the_operator_is_told_for_whom_it_waits_and_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(start_wait, "FIRST_REMINDER_SECONDS", 0.0)
    node = Beginner()
    node.links.up(B)
    node.links.peers[C].unreachable("nobody listens")
    with caplog.at_level(logging.INFO):
        await node.begins_after(lambda: node.links.up(A), lambda: node.links.up(C))
    assert [record.getMessage() for record in caplog.records] == [
        "waiting for node-1 at 127.0.0.1:9000",
        "waiting for node-3 at 127.0.0.1:9000 (nobody listens)",
    ]  # and not again so soon


# --- where it begins


def test_it_joins_a_majority_that_plays_after_its_present_round() -> None:
    node = Beginner()
    node.links.up(A, running=True)
    node.links.up(B, running=True)
    assert node.startup.point((0, 5), None) == StartingPoint(5, 8, Basis.PLAYED)
    node.roster[A].note_round(20)  # what it has sent since its hello
    assert node.startup.point((0, 5), None) == StartingPoint(5, 8, Basis.PLAYED)
    node.roster[B].note_round(21)
    assert node.startup.point((0, 5), 5) == StartingPoint(5, 20, Basis.PLAYED)


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.event, record.getMessage()) for record in caplog.records]  # type: ignore[attr-defined]


def test_the_operator_is_told_who_is_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    node = Beginner()
    node.links.up(A, running=True)
    assert node.startup.point((0,), None) == StartingPoint(0, 0, Basis.OWN)
    own = "it is this node's own newest"
    assert events(caplog) == [
        ("unconfirmed", f"1 of 3 neighbours play, up to round 8: no majority, going on after round 0, {own}")
    ]


@pytest.mark.parametrize(
    ("own", "there", "start", "said"),
    [
        ((0, 5), [A, B, C], StartingPoint(5, 5, Basis.COMMON), None),
        ((0, 4), [A, B, C], StartingPoint(4, 5, Basis.MAJORITY), "5, a majority has this checkpoint"),
        ((0,), [A, B, C], StartingPoint(0, 5, Basis.MAJORITY), "5, a majority has this checkpoint"),
        ((0, 4), [], StartingPoint(4, 4, Basis.OWN), "4, it is this node's own newest"),
        ((0,), [], StartingPoint(0, 0, Basis.OWN), None),
    ],
)
def test_the_operator_is_told_where_not_all_have_the_checkpoint(
    own: tuple[int, ...],
    there: list[NodeName],
    start: StartingPoint,
    said: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Beginner()
    for peer in there:
        node.links.up(peer)
    assert node.startup.point(own, None) == start
    text = "no checkpoint of a round that all neighbours have: going on after round"
    assert events(caplog) == ([] if said is None else [("no-common-round", f"{text} {said}")])
    assert node.startup.point(own, 3) == StartingPoint(3, 3, Basis.COMMON)  # a launcher knows all checkpoints
