"""The bench against other systems: its job is the same on p2p-tally as in the bare loop, and its table is right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).parents[1] / "scripts" / "bench" / "peers"
ROUNDS = 12


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PEERS))


def read(marks: Path) -> list[dict]:
    return [json.loads(line) for line in marks.read_text(encoding="utf-8").splitlines()]


def test_p2p_tally_learns_what_the_bare_loop_learns_and_sends_each_model_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import digits_job
    import on_bare_torch
    import on_p2p_tally

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PEERS_DATA", str(tmp_path / "digits.npz"))
    digits_job.write_data(tmp_path / "digits.npz")
    monkeypatch.setenv("PEERS_MARKS", "bare")
    monkeypatch.setattr(sys, "argv", ["bare", f"--rounds={ROUNDS}"])
    on_bare_torch.main()
    monkeypatch.setenv("PEERS_MARKS", "exact")
    monkeypatch.setattr(sys, "argv", ["tally", "exact", f"--rounds={ROUNDS}", "--eval-every=1"])
    with pytest.raises(SystemExit, match=r"^0$"):
        on_p2p_tally.main()
    bare, exact = read(Path("bare")), read(Path("exact"))
    assert [mark["round"] for mark in bare] == [mark["round"] for mark in exact] == list(range(1, ROUNDS + 1))
    # Other batches, and other shards of the same size: after the first rounds less than 3 points apart.
    for one, other in zip(bare[4:], exact[4:], strict=True):
        assert one["accuracy"] > 90
        assert abs(one["accuracy"] - other["accuracy"]) < 3
    # A mean over a mesh: 8 nodes send 7/8 of 4,810 float32 parameters, once as they are and once summed.
    sent = (exact[-1]["ledger"] - exact[0]["ledger"]) / (ROUNDS - 1)
    assert sent == pytest.approx(8 * 2 * 7 / 8 * 4810 * 4, rel=0.02)


def test_a_row_is_what_happened_between_the_first_mark_and_the_last() -> None:
    import table

    def mark(round: int, at: float, accuracy: float | None) -> dict:
        counted = {"processor": at / 2, "loopback": 1000 * round, "ledger": None}
        return {"round": round, "at": at, "accuracy": accuracy, **counted}

    bare = [mark(1, 10.0, 50.0), mark(2, 10.1, 70.0), mark(3, 10.2, 80.0)]
    row = table.make_row("slow", 4.0, [mark(1, 12.0, None), mark(3, 18.0, 79.0)], 2e8)
    assert (row.seconds, row.processor, row.start, row.loopback, row.rounds) == (3.0, 1.5, 5.0, 1000.0, 3)
    lines = table.table([row, table.Failed("broken", "no wheel | no row")], bare).splitlines()
    assert lines[2] == "| slow | 3 | 1.5 | 5.0 | 200 | 1 |  | 3 | 79.0 | 80.0 |"
    assert lines[3].startswith("| broken | failed: no wheel / no row |")
    assert len({line.count("|") for line in lines}) == 1
    assert table.make_row("none", 0.0, bare[:1], 0.0) == table.Failed(
        "none", "1 rounds were completed, and 2 are needed"
    )


def test_each_program_of_the_table_is_there_and_its_environment_is_pinned() -> None:
    import run

    for system in run.SYSTEMS.values():
        assert (PEERS / system.program[0]).is_file()
        if system.environment != run.OWN:
            pins = (PEERS / "pinned" / f"{system.environment}.txt").read_text(encoding="utf-8").splitlines()
            assert all(name and version for name, _, version in (pin.partition("==") for pin in pins))
            assert "torch==2.13.0" in pins  # the same for all


@pytest.mark.parametrize("name", ["flower", "p2pfl"])
def test_the_other_systems_environments_have_what_their_programs_import(name: str) -> None:
    import environments

    try:
        python = environments.python_of(name, make=False)
    except environments.NoEnvironment:
        pytest.skip(f"{environments.HOME / name} has not been made: python scripts/bench/peers/run.py makes it")
    found = "import importlib.util as u, sys; sys.exit([n for n in sys.argv[1:] if not u.find_spec(n)] or 0)"
    wanted = {"flower": ["flwr", "ray", "torch"], "p2pfl": ["p2pfl", "lightning", "datasets", "torch"]}[name]
    subprocess.run([python, "-c", found, *wanted], check=True, timeout=60)
