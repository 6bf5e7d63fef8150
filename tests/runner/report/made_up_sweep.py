"""A sweep's folder with made-up rounds in it: what a report reads, without the time that runs take."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from p2p_tally.config import NodeSettings, write_options
from p2p_tally.ids import ranked_names
from p2p_tally.json_lines import json_value
from p2p_tally.learning.schedule import evaluates, resolve
from p2p_tally.runner.experiments.experiment import load_experiment
from p2p_tally.runner.experiments.payload import cell_bytes
from p2p_tally.runner.experiments.sweep import Job, manifest
from p2p_tally.runner.runs.run import RoundLine, Run


def make_sweep(
    out: Path,
    spec: str,
    seeds: tuple[int, ...] = (0, 1),
    leave_out: tuple[str, ...] = (),
    notes: Sequence[str] = (),
    changes: Mapping[str, str] | None = None,
) -> Path:
    experiment = load_experiment(spec, changes)
    out.mkdir(parents=True)
    (out / "sweep.json").write_text(json.dumps(manifest(experiment, experiment.cells, out, changes or {}, notes)))
    for number, cell in enumerate(experiment.cells):
        if cell.name in leave_out:
            continue
        for seed in seeds:
            job = Job(cell, seed, out / cell.name / f"seed-{seed}")
            federation = resolve(job.federation, labelled=cell.federation.alpha != 0)
            sent = cell_bytes(cell).sent_bytes
            lines = [
                _line(r, federation.rounds, federation.nodes, number + seed / 3, sent)
                for r in range(1, federation.rounds + 1)
                if evaluates(federation, r)
            ]
            names = [str(name) for name in ranked_names(federation.nodes)]
            run = Run(federation, names, lines, ["0"], 60.0, job.folder)
            job.folder.mkdir(parents=True)
            job.config.write_text(job.options())
            write_options(job.folder / "config.toml", federation, NodeSettings())
            (job.folder / "rounds.jsonl").write_text("".join(json.dumps(line.as_json()) + "\n" for line in lines))
            (job.folder / "summary.json").write_text(json.dumps(json_value(run.summary())))
    return out


def _line(round: int, rounds: int, nodes: int, lift: float, sent: float) -> RoundLine:
    height = (40 + 3 * lift) * (1 - math.exp(-4 * round / rounds)) + 5 * math.sin(round / 5)
    return RoundLine(
        round=round,
        accuracy=[height + (node % 5) * 1.5 for node in range(nodes)],
        loss=[math.log(400.0)] * nodes,
        merged=False,
        plurality_right=None,
        agreement=None,
        margin=None,
        pairwise_kl=None,
        payload_bytes=sent * round / rounds,
        framed_bytes=sent * round / rounds,
        sent={},
        seconds={},
    )
