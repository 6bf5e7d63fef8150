"""A simulation in a notebook: the thread that asks for it has a loop that runs already."""

import asyncio
import gc

import pytest
from conftest import small

from p2p_tally.runner.runs.run import RoundLine
from p2p_tally.runner.simulation.event_loop import run_to_end
from p2p_tally.runner.simulation.simulate import simulate


def test_the_same_bits_with_and_without_a_loop_around_it() -> None:
    async def in_a_notebook() -> list[str]:
        return simulate(small(nodes=2)).parameters_sha256

    assert asyncio.run(in_a_notebook()) == simulate(small(nodes=2)).parameters_sha256


async def test_what_a_listener_raises_ends_it_there() -> None:
    lines: list[RoundLine] = []

    def interrupt(line: RoundLine) -> None:
        lines.append(line)
        raise KeyError("enough")

    with pytest.raises(ExceptionGroup) as raised:
        simulate(small(nodes=2), on_line=interrupt)
    assert raised.group_contains(KeyError) and len(lines) == 1


def test_an_interrupt_of_a_listener_comes_out_and_every_task_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio logged how the other tasks had ended, as of tasks that nobody had asked."""

    def interrupt(line: RoundLine) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(small(nodes=2), on_line=interrupt)
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_an_interrupt_cancels_what_runs_on_the_other_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C in a notebook: it reaches the thread that waits."""
    import threading
    from concurrent.futures import Future

    started, ended = threading.Event(), threading.Event()

    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def interrupted(self: "Future[None]", timeout: float | None = None) -> None:
        started.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(endless())
    assert ended.is_set()
