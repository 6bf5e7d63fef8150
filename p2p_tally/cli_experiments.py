"""Commands on experiments and what they left: topology, payload, sweep, report. The command line is put together in
cli.py."""

from pathlib import Path
from typing import Annotated

import typer

from p2p_tally.cli_options import Json, OldEngine, On, RayAddress, is_on_ray, print_json
from p2p_tally.config import Federation, SimulationSettings
from p2p_tally.errors import ConfigError, StoppedError


def topology(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="graphs, as listed below", show_default=False)],
    nodes: Annotated[int, typer.Option(help="number of nodes")] = 8,
    degree: Annotated[int | None, typer.Option(help="neighbours a node, for graphs that take a degree")] = None,
    seed: Annotated[int, typer.Option(help="seed of random graphs")] = 0,
    hops: Annotated[str, typer.Option(metavar="H|all", help="links that a vote travels, for the bytes")] = "1",
    probes: Annotated[int, typer.Option(help="votes a round, for the bytes")] = 16,
    classes: Annotated[int, typer.Option(help="classes, for the bytes")] = 10,
    parameters: Annotated[int, typer.Option(help="model size, for the bytes")] = 4810,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="draw the graph: .svg, .png or .pdf")] = None,
    as_json: Json = False,
) -> None:
    """Facts of a graph: degree, diameter, spectral gap, bytes a round. Several names give a comparison."""
    from p2p_tally.runner.console.topology import compare, draw, facts

    travelled = Federation.parse({"hops": hops}).hops
    found = [facts(name, nodes, degree, seed, travelled, probes, classes, parameters) for name in names]
    if plot is not None:
        draw(names, nodes, degree, seed, plot)
    if as_json:
        for row in found:
            print_json(row)
    else:
        compare(found, classes)


def payload(
    preset: Annotated[str, typer.Argument(help="name of a preset, or a TOML file of cells")] = "default",
    runs: Annotated[
        list[Path] | None,
        typer.Option("--run", metavar="RUN", help="a folder of runs or of a sweep: what they sent, not formulas"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bytes a peer sends, for each cell of a preset: the paper's accounting, and what this project sends."""
    if runs:
        from p2p_tally.runner.console.tables import print_measured
        from p2p_tally.runner.report.sent_bytes import measure_runs

        measured = measure_runs(runs)
        if as_json:
            print_json({"runs": [cell.as_json() for cell in measured]})
        else:
            print_measured(measured)
        return
    from p2p_tally.runner.console.tables import print_payload
    from p2p_tally.runner.experiments.experiment import load_experiment
    from p2p_tally.runner.experiments.payload import cell_bytes

    experiment = load_experiment(preset)
    cells = [cell_bytes(cell) for cell in experiment.cells]
    if as_json:
        print_json({"preset": experiment.name, "cells": [cell.as_json() for cell in cells]})
    else:
        print_payload(experiment.title, cells)


def sweep(
    experiment: Annotated[str, typer.Argument(help="name of a preset, or a TOML file of cells")],
    seeds: Annotated[str, typer.Option(metavar="S,...", help="seeds, each a run of every cell")] = "0",
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="J",
            help="runs at a time, each on one core [default: 2; on Ray as many as have room]",
        ),
    ] = None,
    on: On = None,
    engine: OldEngine = None,
    ray_address: RayAddress = "local",
    cpus_per_cell: Annotated[float, typer.Option(metavar="C", help="ray: CPUs that a cell asks for")] = 1.0,
    gpus_per_cell: Annotated[float, typer.Option(metavar="G", help="ray: GPUs that a cell asks for, 0.5 too")] = 0.0,
    cells: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="only these cells; names or patterns such as 'tally*'")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="an option that wins over every cell's own; repeatable"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="sweep folder [default: runs/ and the experiment's name]")
    ] = None,
    data_root: Annotated[Path | None, typer.Option(metavar="FOLDER", help="folder of the named data sets")] = None,
    download: Annotated[bool, typer.Option("--download", help="fetch a named data set that is missing")] = False,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="where the models live")] = "auto",
    checkpoint_seconds: Annotated[
        float, typer.Option(metavar="S", help="least seconds between checkpoints of a run; 0: none")
    ] = 60.0,
    notes: Annotated[
        list[str] | None,
        typer.Option(
            "--note", metavar="TEXT", help="what a reader of the report should know of these runs; repeatable"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the cells of an experiment, by seeds. Called again it goes on with what is not finished."""
    from p2p_tally.runner.experiments.experiment import load_experiment
    from p2p_tally.runner.experiments.local_cells import LocalCells
    from p2p_tally.runner.experiments.sweep import Cells, choose, parse_changes, parse_seeds
    from p2p_tally.runner.experiments.sweep import sweep as run_sweep

    changed = parse_changes(changes or [])
    loaded = load_experiment(experiment, changed)
    folder = out or Path("runs") / loaded.name
    given = {"device": device, "data_root": data_root, "download": download, "checkpoint_seconds": checkpoint_seconds}
    settings = SimulationSettings.parse(given)
    chosen, wanted = choose(loaded, cells), parse_seeds(seeds)
    where: Cells = LocalCells(jobs or 2)
    if is_on_ray(on, engine):
        from p2p_tally.runner.ray.cells import RayCells
        from p2p_tally.runner.ray.cluster import Resources

        where = RayCells(ray_address, Resources("cell", cpus_per_cell, gpus_per_cell), jobs)
    try:
        done = run_sweep(
            loaded, chosen, wanted, folder, where=where, settings=settings, changes=changed, notes=notes or []
        )
    except KeyboardInterrupt:
        raise StoppedError("stopped; the same command goes on with what is not finished") from None
    failed = [job for job in done if job.state == "failed"]
    if as_json:
        failures = [{"cell": job.cell.name, "seed": job.seed, "error": job.error} for job in failed]
        counts = {state: sum(job.state == state for job in done) for state in ("done", "kept", "failed")}
        print_json({"experiment": loaded.name, **counts, "failures": failures, "out": str(folder)})
    else:
        from p2p_tally.runner.console.results import print_results

        if len(failed) < len(done):
            print_results(folder)
        for job in failed:
            print(f"failed: {job.cell.name} seed {job.seed}: {job.error} (more in {job.log})")
        print(f"tables and figures: p2p-tally report {folder} --out report.html")
    if failed:
        raise typer.Exit(1)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs or of sweeps")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="report.html (one file) or report.md (figures beside it)")
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="the report's title")] = None,
    notes: Annotated[
        list[str] | None, typer.Option("--note", metavar="TEXT", help="a paragraph at the report's head; repeatable")
    ] = None,
    opening: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Markdown of your own to begin with; {EXPERIMENT: CELL.METRIC} in it is a figure of the runs",
        ),
    ] = None,
    accounting: Annotated[
        str, typer.Option("--bytes", metavar="COUNT", help="what accuracy is drawn against: payload, framed or wire")
    ] = "payload",
) -> None:
    """What was run, tables, figures and which findings hold. Without --out the tables alone, as Markdown."""
    from p2p_tally.runner.report.report import markdown_tables, write_report

    if out is None:
        if opening is not None:
            raise ConfigError(f"--opening {opening}: needs --out FILE, a report to begin")
        print(markdown_tables(runs))
    else:
        write_report(runs, out, notes or [], accounting, title, opening)
        print(f"written: {out}")
