"""Log lines: repeats are rationed, and each event is one line, as text or as JSON, whatever a peer wrote."""

import json
import logging
import sys
from typing import Any

import pytest

from p2p_tally.node.service import logs
from p2p_tally.node.service.logs import RATION_SECONDS, ContextFilter, JsonFormatter, RationFilter, TextFormatter


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def record(message: str = "refused: %s", *args: Any, level: int = logging.WARNING, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("p2p_tally.node", level, __file__, 1, message, args, None)
    vars(made).update(extra)
    return made


def passes(ration: RationFilter, **extra: Any) -> str | None:
    """The line that came of an event; None where it was held back."""
    made = record("x is %d", 5, **extra)
    return made.getMessage() if ration.filter(made) else None


def test_a_burst_is_one_line_and_a_count() -> None:
    clock = Clock()
    ration = RationFilter(clock)
    burst = [passes(ration, event="refused", peer="a") for _ in range(100)]
    assert burst == ["x is 5"] + [None] * 99
    clock.now += RATION_SECONDS - 0.001
    assert passes(ration, event="refused", peer="a") is None
    clock.now += 0.001
    assert passes(ration, event="refused", peer="a") == "x is 5 (and 100 more like it)"
    assert passes(ration, event="refused", peer="a") is None
    clock.now += RATION_SECONDS
    assert passes(ration, event="refused", peer="a") == "x is 5 (and 1 more like it)"
    clock.now += RATION_SECONDS
    assert passes(ration, event="refused", peer="a") == "x is 5"


def test_other_events_and_peers_have_rations_of_their_own() -> None:
    ration = RationFilter(Clock())
    for event in ("refused", "equivocation"):
        for peer in ("a", "b", None):
            assert passes(ration, event=event, peer=peer) == "x is 5"
            assert passes(ration, event=event, peer=peer) is None


def test_what_nobody_else_causes_or_has_no_event_is_not_rationed() -> None:
    ration = RationFilter(Clock())
    for _ in range(3):
        assert passes(ration) == "x is 5"
        assert passes(ration, event="round", level=logging.INFO) == "x is 5"
        assert passes(ration, event="failed", level=logging.ERROR, peer=str(_)) == "x is 5"


def test_the_first_line_passes_whatever_the_clock_says() -> None:
    clock = Clock()
    clock.now = 0.0
    assert passes(RationFilter(clock), event="refused") == "x is 5"


def test_text() -> None:
    made = record("refused: %s", "bad", node="node-1", round=7, peer="node-2")
    made.created = 0.0
    stamp = TextFormatter().formatTime(made, "%H:%M:%S")
    assert TextFormatter().format(made) == f"{stamp} warning node-1 round 7 peer node-2: refused: bad"
    bare = record("begun", level=logging.INFO)
    bare.created = 0.0
    assert TextFormatter().format(bare) == f"{stamp} info    - round -: begun"


def test_json() -> None:
    made = record("refused: %s", 'a "b"\n', node="node-1", round=7, event="refused", peer="node-2", reason="garbage")
    made.created = 12.5
    line = JsonFormatter().format(made)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": 12.5,
        "level": "warning",
        "node": "node-1",
        "round": 7,
        "message": 'refused: a "b"\n',
        "event": "refused",
        "peer": "node-2",
        "reason": "garbage",
    }
    bare = json.loads(JsonFormatter().format(record("begun", level=logging.INFO)))
    assert bare["node"] is None and bare["round"] is None
    assert not {"event", "peer", "reason", "traceback"} & bare.keys()


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\x1b[2Jb", "a\u2028b", "a\x00b"])
def test_what_a_peer_wrote_cannot_begin_a_line_or_paint_the_terminal(text: str) -> None:
    """A stranger's hello is quoted in the refusal: it must not be able to forge a line of this node's log."""
    line = TextFormatter().format(record("refused: %s is no neighbour", text))
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert TextFormatter().format(record("refused: %s", "Grüße, 日本")).endswith(": refused: Grüße, 日本")


def test_a_traceback_is_kept() -> None:
    made = record("failed")
    try:
        raise ValueError("inside")
    except ValueError:
        made.exc_info = sys.exc_info()
    text = TextFormatter().format(made)
    assert "failed\nTraceback" in text and text.endswith("ValueError: inside")
    assert json.loads(JsonFormatter().format(made))["traceback"].endswith("ValueError: inside")


def test_every_record_says_whose_and_in_which_round() -> None:
    round = 3
    context = ContextFilter("node-1", lambda: round)
    made = record()
    assert context.filter(made)
    assert (made.node, made.round) == ("node-1", 3)  # type: ignore[attr-defined]
    round = 4
    again = record()
    context.filter(again)
    assert again.round == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize(("form", "formatter"), [("json", JsonFormatter), ("text", TextFormatter)])
def test_configure_puts_it_together(form: str, formatter: type, capsys: pytest.CaptureFixture[str]) -> None:
    root, ours = logging.getLogger(), logging.getLogger("p2p_tally")
    before = root.handlers, root.level, ours.level
    try:
        logs.configure("node-1", lambda: 3, form)
        (handler,) = root.handlers
        assert type(handler.formatter) is formatter
        log = logging.getLogger("p2p_tally.node.links.link")
        log.info("begun")
        log.debug("too fine")
        logging.getLogger("aiohttp").info("not ours")
        for _ in range(5):
            log.warning("refused", extra={"event": "refused", "peer": "b"})
        lines = capsys.readouterr().err.splitlines()
    finally:
        root.handlers, root.level = before[0], before[1]
        root.setLevel(before[1])
        ours.setLevel(before[2])
    assert len(lines) == 2
    if form == "json":
        assert [json.loads(line)["message"] for line in lines] == ["begun", "refused"]
        assert all(json.loads(line)["node"] == "node-1" and json.loads(line)["round"] == 3 for line in lines)
    else:
        assert lines[0].endswith("info    node-1 round 3: begun")
        assert lines[1].endswith("warning node-1 round 3 peer b: refused")
