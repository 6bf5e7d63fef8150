"""Is all well? A few words, how serious it is, how far the run is, who is concerned and why. From the nodes' states."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

ENDED = ("done", "stopped")

# A round that takes this many times as long as usual, and at least this many seconds, is said to stand still.
STILL_FACTOR = 10.0
STILL_SECONDS = 30.0


@dataclass(frozen=True)
class Verdict:
    level: str  # well, watch or bad
    words: str  # which do not change from round to round: a screen reader reads each change out
    progress: str = ""
    concerns: list[dict[str, str]] = field(default_factory=list)  # each a node's name and why

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def stands_still(waited: float, usual: float | None) -> bool:
    """Whether a round that has lasted `waited` seconds takes far longer than the `usual` ones."""
    return usual is not None and waited > max(STILL_SECONDS, STILL_FACTOR * usual)


def judge(states: Mapping[str, Mapping[str, Any]], rounds: int) -> Verdict:
    """`states`: of each node that is known; `rounds`: of the run."""
    if not states:
        return Verdict("watch", "No node has been heard yet.")
    bad, watch = [], []
    lost = {name for name, state in states.items() if state["state"] == "unreachable"}
    for name, state in states.items():
        if state["state"] == "unreachable":
            bad.append({"node": name, "why": f"does not answer: {state.get('why') or 'no contact'}"})
        elif state["state"] == "stopped":
            watch.append({"node": name, "why": f"stopped after round {state['round']}"})
        elif state.get("still"):
            watch.append({"node": name, "why": f"has been in round {state['round'] + 1} for {_span(state['still'])}"})
        elif state["state"] == "waiting":
            watch.append({"node": name, "why": f"waits for {_names(state['missing'])}"})
        elif state["state"] == "paused":
            watch.append({"node": name, "why": f"pauses until more are there: {_names(state['missing'])} missing"})
        elif state["state"] == "playing" and (others := [peer for peer in state["missing"] if peer not in lost]):
            watch.append({"node": name, "why": f"has no answer from {_names(others)}"})
    concerns = bad + watch
    progress = _progress(states, rounds)
    if not concerns:
        return Verdict("well", "Finished." if _all_done(states) else "All is well.", progress)
    names = _names([one["node"] for one in bad or watch])
    if bad:
        return Verdict("bad", f"{names} {'does' if len(bad) == 1 else 'do'} not answer.", progress, concerns)
    if all(state["state"] == "waiting" for state in states.values()):
        return Verdict("watch", "Not all nodes are there yet.", progress, concerns)
    if all(state["state"] == "paused" for state in states.values()):
        return Verdict("watch", "Paused: too few nodes are there.", progress, concerns)
    return Verdict("watch", f"Look at {names}.", progress, concerns)


def _all_done(states: Mapping[str, Mapping[str, Any]]) -> bool:
    return all(state["state"] == "done" for state in states.values())


def _progress(states: Mapping[str, Mapping[str, Any]], rounds: int) -> str:
    known = [state["accuracy"] for state in states.values() if state.get("accuracy") is not None]
    accuracy = f", accuracy {fmean(known):.1f} %" if known else ""
    if len(known) > 1:
        accuracy += " on average"
    if _all_done(states):
        return f"{_count(len(states), 'node')}, {_count(rounds, 'round')}{accuracy}."
    playing = [state for state in states.values() if state["state"] in ("playing", "paused")]
    done = sum(state["state"] == "done" for state in states.values())
    if not playing:
        what = f"{done} finished" if done else "none in a round"
        return f"Of {_count(len(states), 'node')} {what}{accuracy}."
    first, last = min(state["round"] for state in playing), max(state["round"] for state in playing)
    where = f"{first:,}" if first == last else f"{first:,} to {last:,}"
    who = f"{len(playing)} of {_count(len(states), 'node')}"
    return f"{who} at round {where} of {rounds:,}{accuracy}{_left(playing, rounds)}."


def _left(playing: list[Mapping[str, Any]], rounds: int) -> str:
    times = [(rounds - state["round"]) * state["pace"] for state in playing if state.get("pace")]
    return f", about {_span(max(times))} left" if times and max(times) >= 1 else ""


def _span(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{math.floor(seconds / size + 0.5)} {unit}"
    return f"{math.floor(seconds + 0.5)} s"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number:,} {what}s"


def _names(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown or "nobody"
