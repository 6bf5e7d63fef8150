"""What a node knows of one link: wanted or not, up, lost or refused, and the bytes of all its connections."""

import pytest

from p2p_tally.node.links.addresses import Address
from p2p_tally.node.links.sockets import KernelCount
from p2p_tally.node.links.state import STATES, LinkState


@pytest.fixture
async def link() -> LinkState:
    return LinkState(Address("127.0.0.1", 1))


async def test_at_first_it_is_wanted_and_not_there(link: LinkState) -> None:
    assert (link.state, link.wanted, link.met, link.dialling, link.attempts) == ("down", True, False, False, 0)
    assert (str(link.address), link.detail) == ("127.0.0.1:1", "")


async def test_one_that_is_up_has_been_met_and_its_troubles_are_forgotten(link: LinkState) -> None:
    link.unreachable("nobody listens")
    assert link.attempt_failed()
    assert not link.attempt_failed() and not link.attempt_failed()
    assert (link.attempts, link.detail) == (3, "nobody listens")
    link.up()
    assert (link.state, link.detail, link.attempts, link.met) == ("up", "", 0, True)
    link.ended(idle=False)
    assert link.state == "down" and link.met
    assert link.attempt_failed()  # the first since it was up


@pytest.mark.parametrize(
    ("wanted", "idle", "state"),
    [(True, False, "down"), (True, True, "opening"), (False, True, "idle"), (False, False, "idle")],
)
async def test_the_state_of_one_that_has_ended(wanted: bool, idle: bool, state: str, link: LinkState) -> None:
    link.up()
    link.want(wanted, linked=True)
    link.ended(idle=idle)
    assert link.state == state
    assert state in STATES


async def test_a_wish_changes_a_link_that_is_not_there_and_leaves_one_that_is(link: LinkState) -> None:
    link.refused("another federation")
    assert (link.state, link.detail) == ("refused", "another federation")
    link.want(False, linked=False)
    assert (link.state, link.detail, link.wanted) == ("idle", "", False)
    link.want(True, linked=False)
    assert (link.state, link.wanted) == ("opening", True)
    link.up()
    link.want(False, linked=True)
    assert (link.state, link.wanted) == ("up", False)


async def test_an_attempt_that_fails_ends_the_opening_but_not_a_refusal(link: LinkState) -> None:
    link.want(True, linked=False)
    link.attempt_failed()
    assert link.state == "down"
    link.refused("another federation")
    link.attempt_failed()
    assert link.state == "refused"


async def test_whoever_watches_sees_that_the_wanted_changed(link: LinkState) -> None:
    assert not link.wanted_changed.is_set()
    link.want(False, linked=False)
    assert link.wanted_changed.is_set()
    link.watch_wanted()
    assert not link.wanted_changed.is_set()


async def test_one_task_dials_at_a_time(link: LinkState) -> None:
    link.start_dialling()
    assert link.dialling
    link.stop_dialling()
    assert not link.dialling


async def test_bytes_of_connections_that_have_ended_add_up(link: LinkState) -> None:
    for _ in range(3):
        link.carried(KernelCount(1, 2, 3, 4))
    assert link.kernel == KernelCount(3, 6, 9, 12)
