"""Being seen: health, readiness, status and metrics of real daemons while they play."""

import asyncio
from pathlib import Path

import aiohttp
from conftest import make_daemons, small
from prometheus_client.parser import text_string_to_metric_families

from p2p_tally.node.service.daemon import Daemon
from p2p_tally.runner.console.status import ask

METRICS = {
    "p2p_tally_round",
    "p2p_tally_accuracy",
    "p2p_tally_phase_seconds",
    "p2p_tally_missed",
    "p2p_tally_arrivals",
    "p2p_tally_bytes",
    "p2p_tally_stream_bytes",
    "p2p_tally_link_up",
    "p2p_tally_handshakes_refused",
    "p2p_tally_merges_skipped",
    "p2p_tally_checkpoint_failures",
}


def url(daemon: Daemon, path: str) -> str:
    assert daemon.admin is not None
    return f"http://{daemon.admin.address}{path}"


async def get(session: aiohttp.ClientSession, where: str) -> tuple[int, str]:
    async with session.get(where) as answer:
        return answer.status, await answer.text()


async def test_a_node_that_waits_is_alive_but_not_ready(tmp_path: Path) -> None:
    daemons = make_daemons(small(nodes=2), tmp_path, admin="127.0.0.1:0")
    alone = daemons[1]
    running = asyncio.create_task(alone.run())
    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        while alone.admin.address.port == 0:  # type: ignore[union-attr]
            await asyncio.sleep(0.01)
        assert await get(session, url(alone, "/healthz")) == (200, "ok\n")
        assert await get(session, url(alone, "/readyz")) == (503, "waiting for peers\n")
        (status,) = await ask([url(alone, "")])
        assert (status["name"], status["round"], status["phase"]) == ("node-1", 0, "waiting")
        assert status["missing"] == ["node-0"]
        assert status["links"]["node-0"]["state"] == "down"
        alone.stop()
        await running
    daemons[0].worker.shutdown()


async def test_status_and_metrics_of_a_run(tmp_path: Path) -> None:
    federation = small(nodes=3, rounds=30, eval_every=1)
    seen: list[tuple[dict[str, object], str]] = []

    async def look() -> None:
        async with aiohttp.ClientSession() as session:
            _, text = await get(session, url(first, "/metrics"))
            (status,) = await ask([url(first, "")])
            seen.append((status, text))

    looks: list[asyncio.Task[None]] = []

    def on_line(line: dict[str, object]) -> None:
        if (line["name"], line["round"]) == ("node-0", 20):
            looks.append(asyncio.get_running_loop().create_task(look()))

    daemons = make_daemons(federation, tmp_path, on_line, admin="127.0.0.1:0")
    first = daemons[0]
    # The others stay until node-0 has been looked at.
    async with asyncio.timeout(60):
        tasks = [asyncio.create_task(daemon.run()) for daemon in daemons[1:]]
        await first.run()
        await asyncio.gather(*tasks)
        await asyncio.gather(*looks, return_exceptions=True)
    assert seen, "the admin address did not answer in time"
    status, text = seen[0]
    assert status["rounds"] == 30
    assert 20 <= status["round"] <= 30  # type: ignore[operator]
    assert status["missing"] == []
    assert all(link["state"] == "up" for link in status["links"].values())  # type: ignore[attr-defined]
    assert status["payload_bytes"] > 0  # type: ignore[operator]
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families.keys() >= METRICS - {"p2p_tally_accuracy"}
    sent = {
        (sample.labels["kind"], sample.labels["accounting"]): sample.value
        for sample in families["p2p_tally_bytes"].samples
        if sample.labels["direction"] == "sent"
    }
    assert sent["vote", "payload"] >= 17 * 2 * 16
    assert sent["vote", "framed"] > sent["vote", "payload"]
    phases = {sample.labels["phase"] for sample in families["p2p_tally_phase_seconds"].samples}
    assert phases >= {"train", "vote", "barrier", "distill"}
