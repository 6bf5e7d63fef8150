"""The page of a simulation, on both engines; and it changes no bit of the run."""

import json
from typing import Any

import pytest
from conftest import small

from p2p_tally.page.book import Book
from p2p_tally.page.messages import read_message
from p2p_tally.runner.page.simulated import MOST_NODES, SimulationFeed, simulation_page
from p2p_tally.runner.runs.round_lines import RoundLog
from p2p_tally.runner.runs.run import RoundLine
from p2p_tally.runner.simulation.simulate import simulate
from p2p_tally.topologies import Topology


def watched(engine: Any = "exact", **options: Any) -> tuple[Any, dict[str, Any]]:
    """A run, and its page at the end."""
    book = Book()
    feed = SimulationFeed(book)

    def watch(lines: RoundLog, topology: Topology) -> None:
        feed.begin(lines, topology, 4810)
        lines.listen(lambda line: feed.take(line, lines, lines.votes))

    run = simulate(small(eval_every=1, **options), None, None, engine, watch=watch)
    feed.refresh()
    page = book.whole()
    assert json.loads(json.dumps(page | read_message(page))) == json.loads(json.dumps(page))
    return run, page


@pytest.mark.parametrize("engine", ["exact", "stacked"])
def test_a_simulation_is_on_its_page(engine: str) -> None:
    run, page = watched(engine)
    assert page["verdict"]["level"] == "well" and page["verdict"]["words"] == "Finished."
    for rank, name in enumerate(run.names):
        rows = page["points"][name]
        assert [row[0] for row in rows] == list(range(1, 9))
        assert [row[1] for row in rows] == [round(line.accuracy[rank], 2) for line in run.lines]
        assert sum(rows[-1][2:]) == pytest.approx(run.lines[-1].payload_bytes, abs=2)
        assert page["merges"][name] == [[4], [8]]
        assert set(page["nodes"][name]["links"]) == set(run.names) - {name}
    [record] = page["votes"]
    assert record["round"] == 8 and set(record["votes"]) == set(run.names)
    assert page["about"]["budget"]["soft_round"] == 3 * 16 * 10 * 4


@pytest.mark.parametrize("engine", ["exact", "stacked"])
def test_who_joins_and_who_leaves_is_on_the_page_while_it_takes_part(engine: str) -> None:
    run, page = watched(engine, join="node-3@5", leave="node-1@7")
    played = {name: [row[0] for row in page["points"][name]] for name in run.names}
    assert played["node-0"] == list(range(1, 9))
    assert played["node-3"] == [5, 6, 7, 8]
    assert played["node-1"] == [1, 2, 3, 4, 5, 6]
    assert page["verdict"]["words"] == "Finished."
    assert page["nodes"]["node-1"]["round"] == 6
    assert page["merges"]["node-1"] == [[4]]
    [record] = page["votes"]
    assert set(record["votes"]) == {"node-0", "node-2", "node-3"}
    assert set(page["nodes"]["node-3"]["links"]) == {"node-0", "node-1", "node-2"}


def test_a_crowd_is_shown_in_part() -> None:
    _, page = watched("stacked", nodes=MOST_NODES + 3, rounds=2, partition="resample:20", merge_every=0, warmup=0)
    assert len(page["nodes"]) == MOST_NODES == page["about"]["shown"]
    assert page["about"]["nodes"] == MOST_NODES + 3


def test_the_pace_is_that_of_all_nodes() -> None:
    """Also where only some of them are shown."""
    book = Book()
    feed = SimulationFeed(book)
    nodes = MOST_NODES + 3
    seen: list[RoundLine] = []

    def watch(lines: RoundLog, topology: Topology) -> None:
        feed.begin(lines, topology, 4810)
        lines.listen(seen.append)

    options = {"nodes": nodes, "rounds": 2, "eval_every": 1, "partition": "resample:20", "merge_every": 0, "warmup": 0}
    simulate(small(**options), None, None, "stacked", watch=watch)
    feed.take(seen[0])
    assert book.state_of("node-0")["pace"] == pytest.approx(nodes * sum(seen[0].seconds.values()))


def test_a_page_changes_no_bit(capsys: pytest.CaptureFixture[str]) -> None:
    federation = small(eval_every=1)
    with simulation_page() as watch:
        seen = simulate(federation, watch=watch)
    assert "p2p-tally: page at http://127.0.0.1:" in capsys.readouterr().err
    assert seen.parameters_sha256 == simulate(federation).parameters_sha256
