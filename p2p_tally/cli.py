"""The command line: parse, call, print. Everything heavy is imported inside a command, so --help stays quick."""

import errno
import json
import logging
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p2p_tally.cli_options import collect_options, takes_options
from p2p_tally.config import (
    DaemonSettings,
    Federation,
    ServiceSettings,
    Settings,
    SimulationSettings,
    read_options,
)
from p2p_tally.errors import ConfigError, OperatorError, StoppedError
from p2p_tally.json_lines import json_value, stdout_for_lines, write_line

if TYPE_CHECKING:
    from p2p_tally.runner.runs.run import RoundLine, Run

app = typer.Typer(
    name="p2p-tally",
    help="Peers that learn together by voting: no server, no shared data, one byte a probe.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# A disk that is full, or not to be written on: the operator's to mend, and no traceback helps.
OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)

# click's own class, wherever this release of typer keeps click.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="TOML file of options; a flag wins over the file"),
]
ResumeFolder = Annotated[
    Path | None, typer.Option("--resume", metavar="FOLDER", help="go on with the stopped run in this folder")
]
Engine = Annotated[str, typer.Option(metavar="local|ray", help="processes of this machine, or of a Ray cluster")]
RayAddress = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="ray: local (started for this command), auto (the cluster of this machine), HOST:PORT",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print one line of JSON and nothing else")]


@app.command()
@takes_options(Federation, SimulationSettings)
def simulate(
    *,
    config: ConfigFile = None,
    resume: ResumeFolder = None,
    as_json: Json = False,
    report: Annotated[bool, typer.Option("--report", hidden=True)] = False,
    given: dict[str, Any],
) -> None:
    """Run N nodes in one process and show how well they learn together. --resume goes on where it was interrupted."""
    federation, settings = _simulation_options(given, config, resume)
    from p2p_tally.runner.console.progress import Progress
    from p2p_tally.runner.launch.parent_pipe import end_with_standard_input, tell
    from p2p_tally.runner.simulation.simulate import simulate as run_simulation

    for name in (
        "p2p_tally.runner.simulation.simulate",
        "p2p_tally.runner.simulation.checkpoints",
    ):  # which engine was taken, where a run goes on
        logging.getLogger(name).setLevel(logging.INFO)
    if report:  # to a sweep, which holds the other end of standard input
        end_with_standard_input()
    try:
        with Progress(federation.rounds) as progress:

            def on_line(line: "RoundLine") -> None:
                progress.show(line)
                if report:
                    tell(line)

            run = run_simulation(federation, settings, on_line, None, resume is not None)
    except KeyboardInterrupt:
        raise _stopped_simulation(settings.out) from None
    if not report:
        _show_run(run, as_json)


def _simulation_options(
    given: dict[str, Any], config: Path | None, resume: Path | None
) -> tuple[Federation, SimulationSettings]:
    if resume is None:
        federation, settings = collect_options(given, config, SimulationSettings)
        return federation, _with_folder(federation, settings)
    from p2p_tally.runner.runs.folder import resume_options

    movable = {"device", "data_root", "download", "checkpoint_seconds"}  # the run may go on at another place
    if config or given.keys() - movable:
        accepted = ", ".join("--" + name.replace("_", "-") for name in sorted(movable))
        raise ConfigError(f"--resume: goes on with the run as it was; accepted beside it is {accepted}")
    federation, settings = resume_options(resume, SimulationSettings)
    if (resume / "summary.json").is_file():
        raise ConfigError(f"--resume {resume}: that run is finished")
    return federation, SimulationSettings.parse({**dict(settings), **given})


def _stopped_simulation(folder: Path | None) -> OperatorError:
    from p2p_tally.runner.runs.folder import CHECKPOINTS

    kept = folder is not None and any((folder / CHECKPOINTS).glob("*.safetensors"))
    how = f"go on with: p2p-tally simulate --resume {folder}" if kept else "there is no checkpoint to go on from"
    return StoppedError(f"stopped; {how}")


@app.command()
@takes_options(Federation, ServiceSettings)
def launch(
    *,
    config: ConfigFile = None,
    resume: ResumeFolder = None,
    engine: Engine = "local",
    ray_address: RayAddress = "local",
    cpus_per_node: Annotated[float, typer.Option(metavar="C", help="ray: CPUs that a node asks for")] = 1.0,
    gpus_per_node: Annotated[float, typer.Option(metavar="G", help="ray: GPUs that a node asks for, 0.5 too")] = 0.0,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="ray: let nodes on several machines talk without transport security")
    ] = False,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Run N nodes as daemons over real sockets, on this machine or on Ray. Ctrl-C ends them all; --resume goes on."""
    from p2p_tally.runner.console.progress import Progress
    from p2p_tally.runner.launch.daemons import Daemons, LocalDaemons
    from p2p_tally.runner.launch.launcher import launch as run_daemons
    from p2p_tally.runner.runs.folder import resume_options

    if resume is not None:
        if given or config:
            raise ConfigError("--resume: goes on with the run as it was; accepted beside it is --engine")
        federation, settings = resume_options(resume, ServiceSettings)
    else:
        federation, settings = collect_options(given, config, ServiceSettings)
        settings = _with_folder(federation, settings)
    where: Daemons = LocalDaemons()
    if _on_ray(engine):
        from p2p_tally.runner.ray.cluster import Request
        from p2p_tally.runner.ray.daemons import RayDaemons

        where = RayDaemons(ray_address, Request("node", cpus_per_node, gpus_per_node), federation.nodes, insecure)
    with Progress(federation.rounds) as progress:
        run = run_daemons(federation, settings, progress.show, resume is not None, where)
    _show_run(run, as_json)


@app.command()
@takes_options(Federation, DaemonSettings)
def node(
    *,
    config: ConfigFile = None,
    as_json: Json = False,
    report: Annotated[bool, typer.Option("--report", hidden=True)] = False,
    listen_fd: Annotated[int | None, typer.Option("--listen-fd", hidden=True)] = None,
    resume_round: Annotated[int | None, typer.Option("--resume-round", hidden=True)] = None,
    given: dict[str, Any],
) -> None:
    """Run one node of a federation. Without --topology the --peers are its neighbours; with it, all other members."""
    federation, settings = collect_options(given, config, DaemonSettings)
    membership = "topology" in given or (config is not None and "topology" in read_options(config))
    import socket

    from p2p_tally.node.service.daemon import Daemon, run_daemon

    inherited = None if listen_fd is None else socket.socket(fileno=listen_fd)
    daemon = Daemon(federation, settings, membership=membership, resume_round=resume_round, inherited=inherited)
    if report:
        task = daemon.task
        sizes = {
            "classes": task.classes,
            "probes": len(task.probes.examples),
            "test": len(task.test),
            "parameters": len(daemon.learner.parameters),
        }
        _print_json({"federation": task.federation.model_dump(mode="json"), "sizes": sizes})
        daemon.recorder.on_line = _print_json
    else:
        daemon.keep_record()
    result = run_daemon(daemon, lifeline=report)
    kept = not result["finished"] or daemon.keep_model()
    if report or as_json:
        _print_json(result)
    elif result["finished"]:
        print(f"{result['name']}: finished {result['round']} rounds, parameters {result['parameters_sha256']}")
    else:
        how = "go on with --resume" if result["resumable"] else "there is no checkpoint to go on from"
        print(f"{result['name']}: stopped after round {result['round']}; {how}")
    if not kept:
        raise typer.Exit(1)


@app.command()
def status(
    urls: Annotated[list[str], typer.Argument(help="admin addresses of nodes, e.g. http://127.0.0.1:7101")],
    keep: Annotated[bool, typer.Option("--watch", help="keep the table current until Ctrl-C")] = False,
    as_json: Json = False,
) -> None:
    """Show where running nodes are. The exit code is 1 where one does not answer."""
    import asyncio

    from p2p_tally.runner.console.status import ask, table_of, watch
    from p2p_tally.runner.console.terminal import print_table

    if keep and not as_json:
        asyncio.run(watch(urls))
        return
    nodes = asyncio.run(ask(urls))
    if as_json:
        _print_json({"nodes": nodes})
    else:
        print_table(table_of(nodes))
    if any("error" in node for node in nodes):
        raise typer.Exit(1)


@app.command()
def topology(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="mesh, ring, gossip, star, torus, ...")],
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
            _print_json(row)
    else:
        compare(found, classes)


def _on_ray(engine: str) -> bool:
    if engine not in ("local", "ray"):
        raise ConfigError(f"--engine {engine}: accepted is local or ray")
    return engine == "ray"


def _with_folder(federation: Federation, settings: Settings) -> Settings:
    """A run folder of its own where the operator named none."""
    from p2p_tally.runner.runs.folder import fresh_folder

    if settings.out is not None:
        return settings
    name = f"{federation.method}-{federation.topology.partition(':')[0]}-{federation.nodes}-seed{federation.seed}"
    return settings.model_copy(update={"out": fresh_folder(Path("runs"), name)})


def _show_run(run: "Run", as_json: bool) -> None:
    if as_json:
        _print_json(run.summary())
    else:
        from p2p_tally.runner.console.tables import print_run

        print_run(run)


def _print_json(values: dict[str, Any]) -> None:
    write_line(json.dumps(json_value(values)))


@app.command()
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
            _print_json({"runs": [cell.as_json() for cell in measured]})
        else:
            print_measured(measured)
        return
    from p2p_tally.runner.console.tables import print_payload
    from p2p_tally.runner.experiments.experiment import load_experiment
    from p2p_tally.runner.experiments.payload import cell_bytes

    experiment = load_experiment(preset)
    cells = [cell_bytes(cell) for cell in experiment.cells]
    if as_json:
        _print_json({"preset": experiment.name, "cells": [cell.as_json() for cell in cells]})
    else:
        print_payload(experiment.title, cells)


@app.command()
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
    engine: Engine = "local",
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
    from p2p_tally.runner.experiments.sweep import Cells, LocalCells, choose, parse_changes, parse_seeds
    from p2p_tally.runner.experiments.sweep import sweep as run_sweep

    changed = parse_changes(changes or [])
    loaded = load_experiment(experiment, changed)
    folder = out or Path("runs") / loaded.name
    given = {"device": device, "data_root": data_root, "download": download, "checkpoint_seconds": checkpoint_seconds}
    settings = SimulationSettings.parse(given)
    chosen, wanted = choose(loaded, cells), parse_seeds(seeds)
    where: Cells = LocalCells(jobs or 2)
    if _on_ray(engine):
        from p2p_tally.runner.ray.cells import RayCells
        from p2p_tally.runner.ray.cluster import Request

        where = RayCells(ray_address, Request("cell", cpus_per_cell, gpus_per_cell), jobs)
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
        _print_json({"experiment": loaded.name, **counts, "failures": failures, "out": str(folder)})
    else:
        from p2p_tally.runner.report.report import markdown_tables

        if len(failed) < len(done):
            print(markdown_tables([folder]))
        for job in failed:
            print(f"failed: {job.cell.name} seed {job.seed}: {job.error} (more in {job.log})")
        print(f"tables and figures: p2p-tally report {folder} --out report.html")
    if failed:
        raise typer.Exit(1)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs or of sweeps")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="report.html (one file) or report.md (figures beside it)")
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="the report's title")] = None,
    notes: Annotated[
        list[str] | None, typer.Option("--note", metavar="TEXT", help="a paragraph at the report's head; repeatable")
    ] = None,
    accounting: Annotated[
        str, typer.Option("--bytes", metavar="COUNT", help="what accuracy is drawn against: payload, framed or wire")
    ] = "payload",
) -> None:
    """What was run, tables, figures and which findings hold. Without --out the tables alone, as Markdown."""
    from p2p_tally.runner.report.report import markdown_tables, write_report

    if out is None:
        print(markdown_tables(runs))
    else:
        write_report(runs, out, notes or [], accounting, title)
        print(f"written: {out}")


def main() -> None:
    """Entry point: the operator's mistakes are one line and exit code 2; our own keep their traceback."""
    logging.basicConfig(format="p2p-tally: %(levelname)s: %(message)s", level=logging.WARNING)
    logging.addLevelName(logging.WARNING, "warning")
    lines_only = not {"--json", "--report"}.isdisjoint(sys.argv[1:])
    try:
        with stdout_for_lines() if lines_only else nullcontext():
            code = typer.main.get_command(app).main(standalone_mode=False)
    except OperatorError as error:
        _fail(str(error), error.exit_code)
    except UsageError as error:  # an unknown option or command, a missing argument
        _fail(_usage(error))
    except OSError as error:
        if error.errno not in OF_THE_DISK:
            raise
        _fail(f"cannot write {error.filename or 'all files'}: {error.strerror}", 1)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _usage(error: Exception) -> str:
    """click's own words, with the option that they are about."""
    told = getattr(error, "format_message", None)
    return told() if callable(told) else str(error)


def _fail(message: str, code: int = 2) -> None:
    print("p2p-tally: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(code)
