"""Nodes that were started by hand, in a report: one of them, or all, from one folder or from several."""

import shutil
from pathlib import Path

import pytest
from conftest import open_listener, run_all, small
from made_up_sweep import make_sweep

from p2p_tally.config import DaemonSettings
from p2p_tally.errors import DataError
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.runner.report.document import Bullets, Heading, _html
from p2p_tally.runner.report.figures import pareto
from p2p_tally.runner.report.report import index, markdown_tables, write_report
from p2p_tally.runner.report.results import Results, collect


async def by_hand(out: Path) -> list[Path]:
    """Two nodes that ran together, each with a folder of its own."""
    listeners = {name: open_listener() for name in ("alice", "bob")}
    addresses = {name: f"127.0.0.1:{listener.getsockname()[1]}" for name, listener in listeners.items()}
    daemons = []
    for rank, (name, peer) in enumerate([("alice", "bob"), ("bob", "alice")]):
        values = {"name": name, "rank": rank, "listen": addresses[name], "peers": f"{peer}={addresses[peer]}"}
        settings = DaemonSettings.parse({**values, "out": out / name, "device": "cpu"})
        daemons.append(Daemon(small(nodes=2), settings, membership=True, inherited=listeners[name], keep_record=True))
    await run_all(daemons)
    return [out / "alice", out / "bob"]


async def test_a_report_takes_one_node_or_all_and_draws(tmp_path: Path) -> None:
    alice, bob = await by_hand(tmp_path / "nodes")
    for paths, names in (
        ([alice], ["alice"]),
        ([alice, bob], ["alice", "bob"]),
        ([tmp_path / "nodes"], ["alice", "bob"]),
    ):
        (results,) = collect(paths)
        (cell,) = results.cells
        assert (cell.name, cell.runs[0].names, cell.federation.nodes) == ("tally+fa4", names, len(names))
        assert cell.runs[0].accuracy.shape == (8, len(names))
        out = tmp_path / f"{len(names)}.html"
        write_report(paths, out)
        page = out.read_text()
        assert "tally+fa4" in page and page.count("<svg") == 1
    together = tmp_path / "together"
    together.mkdir()
    for folder in (alice, bob):
        for file in folder.glob("*.*"):
            shutil.copy(file, together)
    assert collect([together, alice])[0].cells[0].metric("tail") is not None
    record = (alice / "alice.jsonl").read_text().splitlines()
    (alice / "alice.jsonl").write_text("\n".join(record[:3]) + "\n")
    with pytest.raises(DataError, match=r"alice\.jsonl: not finished, at round 3 of 8"):
        collect([alice])


def test_a_report_names_what_was_set_by_hand(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path / "sweep", "default", seeds=(0,), changes={"rounds": "30", "lr": "0.01"})
    assert "- Changed by `--set`: `rounds=30`, `lr=0.01`." in markdown_tables([sweep]).splitlines()


def test_a_report_of_many_experiments_has_an_index() -> None:
    found = [Results(name, f"About {name}", []) for name in ("bridge", "rcfd", "fedprox", "default")]
    (contents,) = index(found)[1:]
    assert contents == Bullets([f"[{one.name}](#{one.name}): {one.title}" for one in found])
    assert index(found[:3]) == []
    assert _html(Heading(2, "bridge small")) == '<h2 id="bridge-small">bridge small</h2>'


def test_bytes_on_an_axis_are_written_out(tmp_path: Path) -> None:
    (results,) = collect([make_sweep(tmp_path / "sweep", "default", seeds=(0,), changes={"rounds": "60"})])
    figure = pareto(results)
    assert figure is not None and tuple(figure.get_size_inches()) >= (9.0, 5.0)
    figure.canvas.draw()
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert "100 kB" in labels and not any("10^" in label for label in labels)
