"""A federation over real sockets: members come, go, get other keys and addresses, and the founder is lost."""

import asyncio
from pathlib import Path

from homes import (
    Running,
    ask,
    daemon_of,
    found,
    has_number,
    invitation,
    join,
    own_options,
    plays,
    running,
    until_linked,
)

from p2p_tally.ids import NodeName
from p2p_tally.node.membership.founding import join_federation
from p2p_tally.node.membership.home import Home
from p2p_tally.trust.changes import Kind

ALICE, BOB, CAROL = map(NodeName, ("alice", "bob", "carol"))


async def test_three_end_with_one_model(tmp_path: Path) -> None:
    """Bob joins before the first round, carol while the two play; the last round is a merge."""
    alice = found(tmp_path / "alice", rounds=160)
    async with running() as nodes:
        await nodes.start(alice)
        bob = await join(tmp_path / "bob", invitation(alice, "bob"))
        await nodes.start(bob)
        await plays(nodes.daemons["alice"], 4)
        carol = await join(tmp_path / "carol", invitation(alice, "carol"))
        assert carol.chain().members.current[CAROL].since > 4
        await nodes.start(carol)
        results = [await nodes.end(name) for name in ("alice", "bob", "carol")]
    assert len({result["parameters_sha256"] for result in results}) == 1
    assert all(result["finished"] for result in results)
    assert alice.chain() == bob.chain() == carol.chain()


async def test_who_leaves_ends_and_the_others_play_on(tmp_path: Path) -> None:
    async with running() as nodes:
        alice, bob, carol = await three(nodes, tmp_path)
        await ask(bob, Kind.LEAVE, "bob")
        result = await nodes.end("bob")
        assert result["left"]
        await has_number(nodes.daemons["carol"], 4)
        await plays(nodes.daemons["carol"])
        assert BOB not in nodes.daemons["alice"].topology.members_at(nodes.daemons["alice"].node.position.round + 50)
        assert bob.chain() == alice.chain() == carol.chain()


async def test_a_removed_key_opens_nothing(tmp_path: Path) -> None:
    async with running() as nodes:
        alice, _bob, carol = await three(nodes, tmp_path)
        await ask(alice, Kind.REMOVE, "bob")
        assert (
            "bob" not in nodes.daemons["alice"].transport.links
            or nodes.daemons["alice"].transport.links[BOB].idle is False
        )
        await has_number(nodes.daemons["carol"], 4)
        assert (await nodes.end("bob"))["left"]  # it asked why nobody lets it in
        await plays(nodes.daemons["carol"])
        assert BOB not in nodes.daemons["alice"].transport.links
        assert BOB not in nodes.daemons["carol"].transport.links
        assert alice.chain() == carol.chain()


async def test_keys_are_replaced_while_it_runs(tmp_path: Path) -> None:
    """First of a member, then of the founder itself."""
    async with running() as nodes:
        alice, bob, carol = await three(nodes, tmp_path)
        for number, home, name in ((4, bob, "bob"), (5, alice, "alice")):
            before = home.identity().fingerprint
            await ask(home, Kind.ROTATE, name)
            assert home.identity().fingerprint != before
            for daemon in nodes.daemons.values():
                await has_number(daemon, number)
            await until_linked(nodes.daemons[name], 2)
            await plays(nodes.daemons[name])
        assert alice.chain() == bob.chain() == carol.chain()


async def test_a_key_replaced_while_another_was_away(tmp_path: Path) -> None:
    """Bob comes back with an old list: alice's key is not the one that he knows, and there is nobody else to ask."""
    async with running() as nodes:
        alice, bob = await two(nodes, tmp_path)
        await nodes.stop("bob")
        await ask(alice, Kind.ROTATE, "alice")
        assert bob.chain().members.number == 2
        daemon = await nodes.start(bob)
        await has_number(daemon, 3)
        await until_linked(daemon, 1)
        await plays(daemon)


async def test_an_address_that_changes(tmp_path: Path) -> None:
    async with running() as nodes:
        alice, bob = await two(nodes, tmp_path)
        await nodes.stop("bob")
        moved = own_options()["listen"]
        bob.save_own({**bob.own_options(), "listen": moved})
        daemon = await nodes.start(bob)
        await has_number(nodes.daemons["alice"], 3)
        await plays(daemon)
        assert alice.chain().members.current[BOB].address == moved


async def test_the_successor_carries_on_when_the_founder_is_lost(tmp_path: Path) -> None:
    async with running() as nodes:
        alice, bob, carol = await three(nodes, tmp_path)
        await ask(alice, Kind.SUCCESSOR, "bob")
        await has_number(nodes.daemons["bob"], 4)
        await nodes.stop("alice")
        await ask(bob, Kind.TAKE_OVER, "bob")
        await ask(bob, Kind.REMOVE, "alice")
        dave = await join(tmp_path / "dave", invitation(bob, "dave"))
        await nodes.start(dave)
        await has_number(nodes.daemons["carol"], 7)
        await plays(nodes.daemons["dave"])
        assert bob.chain() == carol.chain() == dave.chain()
        assert list(bob.chain().members.current) == ["bob", "carol", "dave"]


async def test_a_founder_that_comes_back_accepts_the_take_over(tmp_path: Path) -> None:
    async with running() as nodes:
        alice, bob, _carol = await three(nodes, tmp_path)
        await ask(alice, Kind.SUCCESSOR, "bob")
        await has_number(nodes.daemons["bob"], 4)
        await has_number(nodes.daemons["carol"], 4)
        await nodes.stop("alice")
        await ask(bob, Kind.TAKE_OVER, "bob")
        daemon = await nodes.start(alice)
        await has_number(daemon, 5)
        assert daemon.roll.members.orderer == BOB
        await plays(daemon)


async def test_a_member_that_may_invite(tmp_path: Path) -> None:
    """Bob invites; alice orders the change. Then she is away: who wants in waits, and training goes on."""
    async with running() as nodes:
        alice, bob, _carol = await three(nodes, tmp_path)
        await ask(alice, Kind.ALLOW, "bob")
        await has_number(nodes.daemons["bob"], 4)
        dave = await join(tmp_path / "dave", invitation(bob, "dave"))
        await nodes.start(dave)
        await plays(nodes.daemons["dave"])
        await nodes.stop("alice")
        said: asyncio.Queue[str] = asyncio.Queue()
        wants_in = asyncio.create_task(
            join_federation(Home(tmp_path / "erin"), invitation(bob, "erin"), own_options(), said.put_nowait)
        )
        assert await said.get() == "waiting for alice, who orders changes and is away"
        await plays(nodes.daemons["carol"])
        await nodes.start(alice)
        await wants_in
        assert NodeName("erin") in alice.chain().members.current


async def test_a_request_reaches_who_orders_over_others(tmp_path: Path) -> None:
    """On a ring of four, carol is no neighbour of alice: her request is passed on."""
    async with running() as nodes:
        alice = found(tmp_path / "alice", topology="ring")
        await nodes.start(alice)
        homes: dict[str, Home] = {"alice": alice}
        for name in ("bob", "carol", "dave"):
            homes[name] = await join(tmp_path / name, invitation(alice, name))
            await nodes.start(homes[name])
        for daemon in nodes.daemons.values():
            await has_number(daemon, 4)
        carol = nodes.daemons["carol"]
        await plays(carol, 20)
        await ask(homes["carol"], Kind.LEAVE, "carol")
        await has_number(nodes.daemons["dave"], 5)
        assert (await nodes.end("carol"))["left"]


async def test_going_on_from_a_checkpoint_without_being_asked(tmp_path: Path) -> None:
    async with running() as nodes:
        alice, _bob = await two(nodes, tmp_path)
        await plays(nodes.daemons["alice"], 25)
        # She first: left alone she may pause in the middle of a round, and what she has kept is then that of round 20.
        await nodes.stop("alice")
        await nodes.stop("bob")
        assert daemon_of(alice).kept_rounds[-1] > 20


# --- what these tests share


async def two(nodes: Running, folder: Path) -> tuple[Home, Home]:
    alice = found(folder / "alice")
    await nodes.start(alice)
    bob = await join(folder / "bob", invitation(alice, "bob"), eval_every=5000)
    await nodes.start(bob)
    await plays(nodes.daemons["bob"])
    return alice, bob


async def three(nodes: Running, folder: Path) -> tuple[Home, Home, Home]:
    alice, bob = await two(nodes, folder)
    carol = await join(folder / "carol", invitation(alice, "carol"))
    await nodes.start(carol)
    await plays(nodes.daemons["carol"])
    return alice, bob, carol
