"""--resume with other options: it goes on wherever the parameters fit, and says what has changed."""

import logging
from pathlib import Path
from typing import Any

import pytest
from conftest import make_daemons, run_all, small

from p2p_tally.config import DaemonSettings, Federation
from p2p_tally.errors import ConfigError
from p2p_tally.node.service.carry_over import changes, misfit
from p2p_tally.node.service.daemon import Daemon

BEFORE = {"rounds": "200", "classes": "10", "probe set": "ab", "schema": "9 (cd)", "members": "12", "names": "a b c"}


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({}, []),
        ({"rounds": "400"}, ["rounds 200 -> 400"]),
        ({"members": "34", "names": "a c d"}, ["b is no member any more", "d is a new member"]),
        ({"graph": "77"}, ["the graph is another"]),
        ({"lr": "0.1"}, []),
    ],
)
def test_what_has_changed(now: dict[str, str], told: list[str]) -> None:
    assert changes(BEFORE, BEFORE | now) == told
    assert misfit(BEFORE, BEFORE | now) is None


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ({"classes": "100"}, "it is of other data (--data): of 10 classes, here 100"),
        ({"probe set": "ef"}, "it is of other probes (--probes)"),
        ({"schema": "8 (ef)"}, "it is of another model (--model): of 9 (cd), here 8 (ef)"),
    ],
)
def test_what_does_not_fit(now: dict[str, str], why: str) -> None:
    assert misfit(BEFORE, BEFORE | now) == why


async def stopped(out: Path, **options: Any) -> Federation:
    """A run of two that has ended, with checkpoints of rounds 4 and 8."""
    federation = small(nodes=2, merge_every=2, **options)
    results = await run_all(make_daemons(federation, out, checkpoint_every=4))
    assert all(result["finished"] for result in results)
    return federation


def said(caplog: pytest.LogCaptureFixture, event: str) -> set[str]:
    return {record.getMessage() for record in caplog.records if getattr(record, "event", "") == event}


async def test_more_rounds_and_another_cadence_go_on_from_the_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = await stopped(tmp_path)
    longer = federation.model_copy(update={"rounds": 12, "merge_every": 3})
    caplog.set_level(logging.INFO)
    results = await run_all(make_daemons(longer, tmp_path, checkpoint_every=4, resume=True))
    assert all(result["finished"] and result["round"] == 12 for result in results)
    assert said(caplog, "changed") == {"since the checkpoint: rounds 8 -> 12; merge_every 2 -> 3"}
    assert said(caplog, "resumed") == {"going on after round 8, from checkpoint 8"}
    assert said(caplog, "not-carried-over") == set()
    assert len({result["parameters_sha256"] for result in results}) == 1


async def test_a_third_member_joins_those_who_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await stopped(tmp_path, tally_weights="reliability")
    larger = small(nodes=3, rounds=12, merge_every=2, tally_weights="reliability")
    results = await run_all(make_daemons(larger, tmp_path, checkpoint_every=4, resume=True))
    assert all(result["finished"] and result["round"] == 12 for result in results)
    assert len({result["parameters_sha256"] for result in results}) == 1
    [told] = said(caplog, "changed")
    assert "rounds 8 -> 12" in told and "nodes 2 -> 3" in told and "node-2 is a new member" in told
    assert said(caplog, "not-carried-over") == {"not carried over: what was known of the voters begins anew"}


@pytest.mark.parametrize(
    ("before", "after", "left_behind"),
    [
        ({"method": "fedprox"}, {"method": "fedavg"}, "the last merged model is not used"),
        ({"method": "fedavg"}, {"method": "fedprox"}, "the last merged model begins anew"),
        ({}, {"merge_precision": "int8"}, "error feedback of coded merges begins anew"),
        ({"merge_precision": "int8"}, {"merge_precision": "float32"}, "error feedback of coded merges is not used"),
        ({"method": "diloco"}, {"method": "fedavg"}, "the merge rule's state is not used"),
    ],
)
async def test_what_cannot_be_carried_over_is_named(
    before: dict[str, Any], after: dict[str, Any], left_behind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await stopped(tmp_path, **before)
    other = small(**{"nodes": 2, "rounds": 12, "merge_every": 2, **before, **after})
    results = await run_all(make_daemons(other, tmp_path, checkpoint_every=4, resume=True))
    assert said(caplog, "not-carried-over") == {f"not carried over: {left_behind}"}
    assert len({result["parameters_sha256"] for result in results}) == 1


async def test_a_method_whose_merges_keep_a_state_cannot_begin_with_none(tmp_path: Path) -> None:
    await stopped(tmp_path, method="fedavg")
    other = small(nodes=2, rounds=12, merge_every=2, method="diloco")
    with pytest.raises(ConfigError, match=r"^--method diloco: the checkpoint was written with a method whose merges"):
        await run_all(make_daemons(other, tmp_path, checkpoint_every=4, resume=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "mlp:8"}, r"--resume: no checkpoint in .* fits: it is of another model \(--model\): of 4810 "),
        ({"probe_count": 30}, r"--resume: no checkpoint in .* fits: it is of other probes \(--probes\); begin anew"),
        ({"rounds": 6}, r"--rounds 6: the newest checkpoint in .* is of round 8; accepted is 8 or more"),
    ],
)
async def test_what_does_not_fit_is_one_line(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    await stopped(tmp_path)
    with pytest.raises(ConfigError, match=message):
        make_daemons(small(**{"nodes": 2, "merge_every": 2, **options}), tmp_path, checkpoint_every=4, resume=True)


async def test_a_new_run_does_not_begin_where_another_left_its_checkpoints(tmp_path: Path) -> None:
    await stopped(tmp_path)
    with pytest.raises(ConfigError, match="holds checkpoints of an earlier run; add --resume, or name another folder"):
        make_daemons(small(nodes=2, model="mlp:8"), tmp_path)


def test_a_node_that_knows_its_neighbours_only_goes_on_with_others(tmp_path: Path) -> None:
    values = {"name": "a", "listen": "127.0.0.1:0", "peers": "b=127.0.0.1:9", "out": tmp_path, "resume": True}
    daemon = Daemon(small(nodes=1), DaemonSettings.parse(values), membership=False)
    assert daemon.kept_rounds == (0,)
    daemon.worker.shutdown()
