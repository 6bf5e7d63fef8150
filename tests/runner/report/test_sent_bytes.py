"""What runs sent, read back from their folders."""

from pathlib import Path

import pytest

from p2p_tally.config import Federation, NodeSettings
from p2p_tally.runner.report.results import read_run
from p2p_tally.runner.report.sent_bytes import measure_runs
from p2p_tally.runner.simulation.simulate import simulate


def test_kinds_add_up_and_codings_stand_beside(tmp_path: Path) -> None:
    small = {"nodes": 3, "rounds": 12, "warmup": 2, "merge_every": 6, "tail": 3}
    for ballot in ("byte", "coded"):
        simulate(Federation(ballot=ballot, **small), NodeSettings(out=tmp_path / ballot))
    simulate(Federation(method="fedavg", **small), NodeSettings(out=tmp_path / "fedavg"))
    cells = {cell.ballot: cell for cell in measure_runs([tmp_path / name for name in ("byte", "coded", "fedavg")])}
    byte, coded, none = cells["byte"], cells["coded"], cells["–"]
    for cell in cells.values():
        assert sum(kind["payload"] for kind in cell.kinds.values()) == pytest.approx(cell.payload)
        assert sum(kind["framed"] for kind in cell.kinds.values()) == pytest.approx(cell.framed)
        assert cell.wire is None
    assert byte.payload == byte.as_byte == coded.as_byte
    assert coded.as_packed is not None and coded.payload < coded.as_packed < byte.payload
    assert none.as_byte is None and none.as_packed is None


def test_ballots_of_probabilities_are_named_with_their_precision(tmp_path: Path) -> None:
    small = {"nodes": 2, "rounds": 3, "warmup": 1, "merge_every": 0, "tail": 1}
    simulate(Federation(method="fedmd", soft_precision="int8", **small), NodeSettings(out=tmp_path / "fedmd"))
    simulate(Federation(method="rcfd", top_k=2, **small), NodeSettings(out=tmp_path / "rcfd"))
    soft, top = measure_runs([tmp_path / "fedmd", tmp_path / "rcfd"])
    assert (soft.ballot, top.ballot) == ("soft, int8", "top 2, float32")
    assert soft.as_byte is None and top.as_packed is None


def test_the_wire_of_a_launched_run_is_kept_in_its_folder(tmp_path: Path) -> None:
    run = simulate(Federation(nodes=2, rounds=3, tail=1), NodeSettings(out=tmp_path / "run"))
    assert "wire_bytes" not in run.summary()
    run.wire_bytes = 1234.5
    summary = run.summary()
    assert summary["wire_bytes"] == 1234.5
    import json

    (tmp_path / "run/summary.json").write_text(json.dumps(summary))
    assert read_run(tmp_path / "run").wire_bytes == 1234.5
