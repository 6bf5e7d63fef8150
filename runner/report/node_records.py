"""Nodes that were started by hand, read back as runs: NAME.toml and NAME.jsonl of each, wherever their folders are."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from p2p_tally.config import Federation, NodeSettings, parse_options, read_options
from p2p_tally.errors import DataError
from p2p_tally.ids import name_key
from p2p_tally.runner.runs.provenance import Provenance
from p2p_tally.runner.runs.run import RoundLine, Run, of_each


@dataclass(frozen=True)
class NodeRecord:
    """What one finished node left: its options, and a line for each evaluated round."""

    path: Path
    name: str
    federation: Federation
    device: str
    lines: dict[int, dict[str, Any]]  # by round; of a round played again after a resume, the last


def read_node_records(path: Path) -> list[NodeRecord]:
    """The nodes whose records are in a folder or below it."""
    pairs = ((options, options.with_suffix(".jsonl")) for options in sorted(path.rglob("*.toml")))
    return [_read(options, lines) for options, lines in pairs if lines.is_file()]


def _read(options: Path, record: Path) -> NodeRecord:
    federation, settings = parse_options(read_options(options, "run"), NodeSettings, source=str(options))
    lines: dict[int, dict[str, Any]] = {}
    for text in record.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
            lines[int(line["round"])] = line
        except json.JSONDecodeError:
            break  # the last one, cut off
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{record}: not as p2p-tally writes it ({type(error).__name__}: {error})") from None
    last = max(lines, default=0)
    if last < federation.rounds:
        raise DataError(f"{record}: not finished, at round {last} of {federation.rounds}")
    return NodeRecord(record, str(lines[last]["name"]), federation, settings.device, lines)


def runs_of(records: Sequence[NodeRecord]) -> list[Run]:
    """One run for each federation: the nodes that agreed on all that peers must share."""
    federations: dict[str, dict[Path, NodeRecord]] = {}
    for record in records:
        key = json.dumps(record.federation.agreed(), sort_keys=True, default=str)
        federations.setdefault(key, {})[record.path.resolve()] = record  # a folder may be named twice
    return [_run(sorted(nodes.values(), key=lambda one: name_key(one.name))) for nodes in federations.values()]


def _run(nodes: Sequence[NodeRecord]) -> Run:
    first = nodes[0]
    rounds = sorted(set(first.lines).intersection(*(node.lines for node in nodes)))
    ended = datetime.fromtimestamp(max(node.path.stat().st_mtime for node in nodes), UTC)
    return Run(
        first.federation.model_copy(update={"nodes": len(nodes)}),
        [node.name for node in nodes],
        [_line(round, [node.lines[round] for node in nodes]) for round in rounds],
        seconds=max(_seconds(node.lines.values()) for node in nodes),
        folder=first.path.parent,
        provenance=Provenance(date=ended.strftime("%Y-%m-%d %H:%M"), engine="node", device=first.device),
    )


def _line(round: int, lines: Sequence[dict[str, Any]]) -> RoundLine:
    """A round of all nodes. What was measured over the votes that one node heard is left out."""
    return RoundLine(
        round=round,
        accuracy=of_each(lines, "accuracy"),
        loss=of_each(lines, "loss"),
        merged=any(line["merged"] for line in lines),
        plurality_right=None,
        agreement=None,
        margin=None,
        pairwise_kl=None,
        payload_bytes=statistics.fmean(line["payload_bytes"] for line in lines),
        framed_bytes=statistics.fmean(line["framed_bytes"] for line in lines),
        sent={},
        seconds={},
        own_accuracy=of_each(lines, "own_accuracy"),
    )


def _seconds(lines: Iterable[dict[str, Any]]) -> float:
    return float(sum(sum(line["seconds"].values()) for line in lines))
