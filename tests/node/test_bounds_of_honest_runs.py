"""No bound of a robust merge bites in honest runs, whatever the method and the format: not even a quarter of it."""

from typing import Any

import pytest
from conftest import small

from p2p_tally.defence import bounds
from p2p_tally.learning.methods import METHODS
from p2p_tally.runner.simulation.simulate import simulate

CASES: list[dict[str, Any]] = [
    *({"method": method} for method in METHODS if method != "local"),
    {"partition": "dirichlet:0.05", "lr": 0.01},
    {"partition": "dirichlet:0.05", "merge_precision": "bfloat16"},
    {"merge_precision": "int8", "merge_top_k": 0.1},
    {"robust_merge": "clip", "merge_precision": "int8"},
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_all_contributions_count(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounds, "TIMES", bounds.TIMES / 4)
    run = simulate(small(nodes=5, rounds=8, merge_every=4, eval_every=4, **options))
    assert run.lines[-1].merged
    assert "refused" not in caplog.text
    assert "again without" not in caplog.text
