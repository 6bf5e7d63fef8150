"""A user's own method over real sockets: the bits and bytes of the simulation, and what the peers compare of it."""

import sys
from pathlib import Path

import pytest
from conftest import run_as_simulated, small

ROW = """
import numpy as np
from p2p_tally import Method, Sends, top_k


def first_choices(answers, classes, federation, weights):
    target = np.zeros((len(answers[0][0]), classes), np.float32)
    for likeliest, shares in answers:
        target[np.arange(len(target)), likeliest[:, 0]] += shares[:, 0]
    return target / target.sum(1, keepdims=True)


ROW = Method(
    "first-choices", sends=Sends.TOP_K, answer=top_k, target=first_choices, learns_from_probes=True, waits=True
)
"""


@pytest.mark.parametrize("graph", ["mesh", "ring"])
async def test_the_same_bits_and_bytes(graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_row_over_sockets.py").write_text(ROW)
    federation = small(method="own_row_over_sockets:ROW", top_k=2, topology=graph, eval_every=8)
    for daemon in await run_as_simulated(federation, tmp_path):
        assert daemon.task.federation.agreed()["method"].startswith("first-choices ")
