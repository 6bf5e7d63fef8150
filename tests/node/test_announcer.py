"""What a node tells the others about itself, and to whom: every message as it goes over a link."""

from typing import Any

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.node.links.memory import MemoryNetwork, MemoryTransport
from p2p_tally.node.links.outbox import Outbox
from p2p_tally.node.position import Position
from p2p_tally.node.step.announcer import ANSWER_SECONDS, Announcer
from p2p_tally.protocol import frames
from p2p_tally.protocol.frames import Limits
from p2p_tally.protocol.ledger import Ledger
from p2p_tally.protocol.messages import Bye, Here, Message, Notice, Stage, Waiting
from p2p_tally.topologies import Schedule, Topology

ME, A, B, FAR = (NodeName(f"node-{rank}") for rank in range(4))
MEMBERS = [ME, A, B, FAR]
STAYS = Schedule(lambda _: [(0, 1), (0, 2), (2, 3)])
# A neighbour in odd rounds, B in even ones.
CHANGES = Schedule(lambda phase: [(0, 1 + phase), (1, 3)], phases=2)


class Door:
    """A peer that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[Message] = []

    def deliver(self, _peer: NodeName, frame: bytes) -> bool:
        self.heard.append(frames.decode(frame, Limits.of(16, 4, merging=True)))
        return True


class Route:
    """The way votes take, as far as announcements go over it."""

    def __init__(self, relayed: bool) -> None:
        self.relayed = relayed
        self.told: list[Notice] = []
        self.urged: list[int] = []
        self.ended = False

    def tell(self, notice: Notice) -> None:
        self.told.append(notice)

    announce = tell

    def long_wait(self, round: int) -> None:
        self.urged.append(round)

    def end(self) -> None:
        self.ended = True


class Speaker:
    """One node, and everybody that hears it."""

    def __init__(self, *, relayed: bool = False, schedule: Schedule = STAYS) -> None:
        network = MemoryNetwork()
        self.receivers: dict[NodeName, Any] = {name: Door() for name in (A, B, FAR)}
        network.receivers.update(self.receivers)
        transport = MemoryTransport(network, ME)
        self.position = Position(Federation(rounds=10, warmup=0))
        self.votes: Any = Route(relayed)
        self.now = 0.0
        outbox = Outbox(ME, transport, Ledger())
        topology = Topology("drawn", MEMBERS, schedule)

        def near(round: int) -> list[NodeName]:
            return [NodeName(peer) for peer in topology.neighbours(ME, round)]

        self.announcer = Announcer(
            near, topology.varies, transport, outbox, self.votes, self.position, lambda: self.now
        )

    @property
    def heard(self) -> dict[NodeName, list[Message]]:
        """By everybody that heard anything, since the last look."""
        heard = {name: door.heard for name, door in self.receivers.items() if door.heard}
        for door in self.receivers.values():
            door.heard = []
        return heard


def test_before_the_first_round_the_neighbours_hear_that_it_is_here() -> None:
    speaker = Speaker()
    speaker.announcer.here()
    assert speaker.heard == {A: [Here(0)], B: [Here(0)]}
    assert speaker.votes.told == []  # everybody begins: nobody has missed anything


def test_one_that_comes_back_tells_also_those_who_are_no_neighbours() -> None:
    speaker = Speaker(relayed=True)
    speaker.position.move_to(3)
    speaker.announcer.here()
    assert speaker.heard == {A: [Here(3)], B: [Here(3)]}
    assert speaker.votes.told == [Here(3)]


def test_where_the_graph_changes_a_running_node_tells_everyone_that_there_is_a_link_to() -> None:
    speaker = Speaker(schedule=CHANGES)
    speaker.announcer.here()
    assert speaker.heard == {A: [Here(0)]}  # the neighbours of round 1
    speaker.position.move_to(2)
    speaker.announcer.here()
    assert speaker.heard == {A: [Here(2)], B: [Here(2)], FAR: [Here(2)]}


def test_a_goodbye_says_the_last_round_and_ends_the_news() -> None:
    speaker = Speaker()
    speaker.position.move_to(10)
    speaker.announcer.bye()
    assert speaker.heard == {A: [Bye(10)], B: [Bye(10)]}
    assert speaker.votes.ended


def test_who_waits_for_votes_says_so_and_has_them_flooded() -> None:
    speaker = Speaker(relayed=True)
    speaker.announcer.waiting(4, Stage.VOTE)
    waiting = Waiting(4, Stage.VOTE)
    assert speaker.heard == {A: [waiting], B: [waiting]}
    assert speaker.votes.told == [waiting] and speaker.votes.urged == [4]


def test_who_waits_in_a_merge_tells_the_neighbours_of_that_round_alone() -> None:
    speaker = Speaker(relayed=True, schedule=CHANGES)
    speaker.announcer.waiting(4, Stage.SCATTER)
    assert speaker.heard == {B: [Waiting(4, Stage.SCATTER)]}
    assert speaker.votes.told == [] and speaker.votes.urged == []


def test_only_a_node_that_is_not_so_far_answers() -> None:
    speaker = Speaker()
    speaker.position.move_to(3)
    speaker.announcer.answer(A, 3)
    assert speaker.heard == {}  # it has sent all of round 3
    speaker.announcer.answer(A, 4)
    assert speaker.heard == {A: [Here(3)]}


def test_a_neighbour_is_answered_at_once_and_over_its_link() -> None:
    speaker = Speaker(relayed=True)
    for _ in range(3):
        speaker.announcer.answer(B, 1)
    assert speaker.heard == {B: [Here(0)] * 3}
    assert speaker.votes.told == []


def test_those_further_away_are_answered_all_together_and_not_too_often() -> None:
    speaker = Speaker(relayed=True)
    answers = []
    for now in (0.0, 0.5 * ANSWER_SECONDS, ANSWER_SECONDS, 1.5 * ANSWER_SECONDS, 2 * ANSWER_SECONDS):
        speaker.now = now
        speaker.announcer.answer(FAR, 1)
        answers.append(len(speaker.votes.told))
    assert answers == [1, 1, 1, 2, 2]
    assert speaker.votes.told == [Here(0)] * 2 and speaker.heard == {}


def test_where_votes_are_not_relayed_everyone_that_asks_is_answered_directly() -> None:
    speaker = Speaker(schedule=CHANGES)
    speaker.announcer.answer(FAR, 1)
    assert speaker.heard == {FAR: [Here(0)]} and speaker.votes.told == []
