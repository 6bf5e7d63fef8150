"""What a daemon puts on its page, while it plays with others over real sockets."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from conftest import make_daemons, run_all, small

from p2p_tally.node.page.feed import NodeFeed
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.page.messages import read_message


def feed_of(daemon: Daemon) -> NodeFeed:
    assert daemon.admin is not None
    return daemon.admin.feed


def shown(daemon: Daemon) -> dict[str, Any]:
    feed = feed_of(daemon)
    feed.refresh()
    return read_message(feed.book.whole())


@pytest.mark.parametrize("method", ["tally", "fedmd", "rcfd"])
async def test_a_run_is_on_the_page_of_each_node(tmp_path: Path, method: str) -> None:
    federation = small(nodes=3, eval_every=1, method=method)
    daemons = make_daemons(federation, tmp_path, admin="127.0.0.1:0")
    results = await run_all(daemons)
    for daemon, result in zip(daemons, results, strict=True):
        page = shown(daemon)
        assert page["about"]["own"] == daemon.name and page["about"]["rounds"] == 8
        own = page["nodes"][daemon.name]
        assert (own["state"], own["round"], own["missing"]) == ("done", 8, [])
        points = page["points"][daemon.name]
        assert [row[0] for row in points] == list(range(1, 9))
        assert sum(points[-1][2:]) == result["payload_bytes"]
        assert points[-1][2] > 0 and points[-1][3] > 0
        assert page["merges"][daemon.name] == [[4], [8]]
        [record] = page["votes"]
        assert record["round"] == 8 and set(record["votes"]) == {"node-0", "node-1", "node-2"}
        assert [len(votes) for votes in record["votes"].values()] == [16, 16, 16]
        assert record["views"][0]["width"] == 8 and len(record["labels"]) == 16
    assert shown(daemons[0])["votes"][0]["votes"] == shown(daemons[1])["votes"][0]["votes"]
    links = shown(daemons[0])["nodes"]["node-0"]["links"]
    theirs = shown(daemons[1])["nodes"]["node-1"]["links"]
    assert links["node-1"][1] == theirs["node-0"][2] > 0  # what one has sent the other has received


async def test_a_round_costs_no_look_at_votes_while_nobody_looks(tmp_path: Path) -> None:
    daemons = make_daemons(small(nodes=2), tmp_path, admin="127.0.0.1:0")
    await run_all(daemons)
    book = feed_of(daemons[0]).book
    assert book.whole()["votes"] == [] and book.about == {}  # made when somebody looks


async def test_bytes_of_before_a_resume_count(tmp_path: Path) -> None:
    federation = small(nodes=2, eval_every=1)
    first = make_daemons(federation, tmp_path, checkpoint_every=4)
    results = await run_all(first)
    again = make_daemons(federation, tmp_path, admin="127.0.0.1:0", checkpoint_every=4, resume=True)
    for daemon in again:
        daemon.kept_rounds = (0, 4)  # as if the last checkpoint were lost
    await run_all(again)
    points = shown(again[0])["points"]["node-0"]
    assert [row[0] for row in points] == [5, 6, 7, 8]
    assert sum(points[-1][2:]) == results[0]["payload_bytes"]


async def test_the_admin_address_serves_the_page(tmp_path: Path) -> None:
    daemons = make_daemons(small(nodes=2), tmp_path, admin="127.0.0.1:0")
    alone = daemons[1]
    running = asyncio.create_task(alone.run())
    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        while alone.admin.address.port == 0:  # type: ignore[union-attr]
            await asyncio.sleep(0.01)
        base = f"http://{alone.admin.address}"  # type: ignore[union-attr]
        async with session.get(base + "/") as answer:
            assert answer.status == 200 and "default-src 'none'" in answer.headers["Content-Security-Policy"]
        async with session.get(base + "/status", headers={"Origin": "http://evil.example"}) as answer:
            assert answer.status == 403
        async with session.get(base + "/events") as answer:
            line = await answer.content.readline()
            assert line == b"retry: 1000\n"
            assert b'"waits for node-0"' in await answer.content.readline()
            alone.stop()
            rest = await answer.content.read()
        assert rest.endswith(b"event: end\ndata: {}\n\n") and b'"stopped"' in rest
        await running
    daemons[0].worker.shutdown()
