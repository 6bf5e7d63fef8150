"""A few thousand inputs for everything that reads bytes of others; `scripts/fuzz.py` does it by the million."""

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import fuzz
import pytest
from fuzz import CHUNK, Count, State, inputs, plan, read_chunk, targets
from fuzzing.targets import Target

from p2p_tally.errors import FrameError
from p2p_tally.protocol.messages import Kind

TARGETS = targets()
NOT_ONE_INPUT = ("inbox", "pieces", "list", "welcome")  # a seed of these is a part of an input


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """An inbox logs every refusal."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_almost_right_is_read_or_refused(name: str) -> None:
    found = read_chunk(TARGETS[name], 1, 0, 300)
    assert found.bad == []
    assert found.inputs == 300


@pytest.mark.parametrize("name", [name for name in TARGETS if not name.startswith(NOT_ONE_INPUT)])
def test_the_valid_inputs_are_read(name: str) -> None:
    """Otherwise what is made from them would be refused at the first byte."""
    for seed in TARGETS[name].seeds:
        TARGETS[name].read(seed)


def test_there_is_a_frame_of_every_kind() -> None:
    seeds = {seed[1] for name in ("frames", "hello", "carried") for seed in TARGETS[name].seeds}
    assert seeds == {kind.value for kind in Kind}


def of_a_reader(read: object) -> Target:
    return Target("x", read, (FrameError,), [b"12345678"])  # type: ignore[arg-type]


def test_a_fault_a_long_time_and_much_memory_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: bytes) -> None:
        raise FrameError("no")

    def fail(_: bytes) -> None:
        raise KeyError("x")

    assert read_chunk(of_a_reader(refuse), 0, 0, 3).bad == []
    assert [one["wrong"] for one in read_chunk(of_a_reader(fail), 0, 0, 2).bad] == ["KeyError: 'x'"] * 2
    assert "memory" in read_chunk(of_a_reader(lambda _: bytes(2 << 20)), 0, 0, 1).bad[0]["wrong"]
    monkeypatch.setattr("fuzz.MOST_SECONDS", 1e-9)
    assert " s" in read_chunk(of_a_reader(lambda _: sorted(range(1000))), 0, 0, 1).bad[0]["wrong"]


def test_inputs_can_be_made_again() -> None:
    frames = TARGETS["frames"]
    assert list(inputs(frames, 3, 5, 50)) == list(inputs(frames, 3, 5, 50)) != list(inputs(frames, 3, 6, 50))


def test_a_campaign_goes_on_where_it_ended(tmp_path: Path) -> None:
    state, chosen = State(tmp_path / "state.json"), [TARGETS["frames"], TARGETS["hello"]]
    for name, chunk in plan(state, chosen, 5 * CHUNK):
        assert chunk == state.counts.get(name, Count()).inputs // CHUNK
        state.add(name, Count(inputs=CHUNK))
    again = State(tmp_path / "state.json")
    assert again.total == 5 * CHUNK and again.counts["frames"].inputs > again.counts["hello"].inputs > 0
    assert list(plan(again, chosen, 5 * CHUNK)) == []


def test_the_script_prints_a_table_and_refuses_a_target_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"counts": {"hello": {"inputs": 7, "bad": [{"wrong": "x"}]}}}))
    for arguments, code in ((["--inputs=7"], 1), (["--targets=x"], 2)):
        monkeypatch.setattr(sys, "argv", ["fuzz.py", f"--state={state}", *arguments])
        with pytest.raises(SystemExit) as ended:
            fuzz.main()
        assert ended.value.code == code
    said = capsys.readouterr()
    assert "| `hello` | 7 |" in said.out and "1 not as wanted" in said.out
    assert "--targets x: accepted are frames, hello" in said.err
