"""The command line: parse, call, print. Everything heavy is imported inside a command, so --help stays quick."""

import errno
import logging
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p2p_tally import __version__, cli_evidence, cli_experiments, cli_features, cli_members, cli_models, cli_page
from p2p_tally.cli_environment import FromEnvironment, read_environment, unknown_variables
from p2p_tally.cli_help import GraphCommand, GroupedCommand
from p2p_tally.cli_options import (
    ConfigFile,
    Json,
    OldEngine,
    On,
    Page,
    RayAddress,
    ResumeFolder,
    check_beside_resume,
    collect_options,
    file_options,
    is_on_ray,
    print_end,
    print_json,
    takes_options,
)
from p2p_tally.config import (
    DaemonSettings,
    Federation,
    ServiceSettings,
    Settings,
    SimulationSettings,
)
from p2p_tally.errors import ConfigError, OperatorError, StoppedError
from p2p_tally.json_lines import stdout_for_lines

if TYPE_CHECKING:
    from p2p_tally.runner.runs.run import RoundLine, Run

log = logging.getLogger(__name__)

app = typer.Typer(
    name="p2p-tally",
    help="Peers that learn together by voting: no server, no shared data, one byte a probe.",
    epilog="Every option is also a variable of the environment: --merge-every is P2P_TALLY_MERGE_EVERY.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# A full or read-only disk: the operator can solve it, and a traceback would not help.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)

# click's own class, wherever this release of typer keeps click.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"p2p-tally {__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    _: Annotated[
        bool, typer.Option("--version", help="show the version and exit", is_eager=True, callback=_print_version)
    ] = False,
) -> None: ...


@app.command(cls=GroupedCommand)
@takes_options(Federation, SimulationSettings)
def simulate(
    *,
    config: ConfigFile = None,
    resume: ResumeFolder = None,
    as_json: Json = False,
    page: Page = False,
    ray_address: RayAddress = "local",
    report: Annotated[bool, typer.Option("--report", hidden=True)] = False,
    given: dict[str, Any],
) -> None:
    """Run N nodes in one process and show how well they learn together. --resume continues an interrupted run."""
    federation, settings = _simulation_options(given, config, resume)
    from p2p_tally.runner.console.progress import Progress
    from p2p_tally.runner.launch.parent_pipe import end_with_standard_input, report_line
    from p2p_tally.runner.simulation.simulate import simulate as run_simulation

    for name in (
        "p2p_tally.runner.simulation.simulate",
        "p2p_tally.runner.simulation.checkpoints",
    ):  # which engine was taken, where a run goes on
        logging.getLogger(name).setLevel(logging.INFO)
    if report:  # to a sweep, which holds the other end of standard input
        end_with_standard_input()
    try:
        with cli_page.page_of_simulation(page) as watch, Progress(federation.rounds) as progress:

            def on_line(line: "RoundLine") -> None:
                progress.show(line)
                if report:
                    report_line(line)

            run = run_simulation(federation, settings, on_line, None, resume is not None, watch, ray_address)
    except KeyboardInterrupt:
        raise _stopped_simulation(settings.out) from None
    if not report:
        _show_run(run, as_json)


def _simulation_options(
    given: dict[str, Any], config: list[Path] | None, resume: Path | None
) -> tuple[Federation, SimulationSettings]:
    if resume is None:
        federation, settings = collect_options(given, config, SimulationSettings)
        return federation, _with_folder(federation, settings)
    from p2p_tally.runner.runs.folder import resume_options

    movable = {
        "device",
        "data_root",
        "download",
        "checkpoint_seconds",
        "workers",
    }  # where a run continues, not what it is
    check_beside_resume(given, config, movable)
    federation, settings = resume_options(resume, SimulationSettings)
    if (resume / "summary.json").is_file():
        raise ConfigError(f"--resume {resume}: that run is finished")
    return federation, SimulationSettings.parse({**dict(settings), **given})


def _stopped_simulation(folder: Path | None) -> OperatorError:
    from p2p_tally.runner.runs.folder import CHECKPOINTS

    kept = folder is not None and any((folder / CHECKPOINTS).glob("*.safetensors"))
    how = f"go on with: p2p-tally simulate --resume {folder}" if kept else "there is no checkpoint to go on from"
    return StoppedError(f"stopped; {how}")


@app.command(cls=GroupedCommand)
@takes_options(Federation, ServiceSettings)
def launch(
    *,
    config: ConfigFile = None,
    resume: ResumeFolder = None,
    on: On = None,
    engine: OldEngine = None,
    ray_address: RayAddress = "local",
    cpus_per_node: Annotated[
        float, typer.Option(metavar="C", help="ray: CPUs that a node asks for", rich_help_panel="Ray")
    ] = 1.0,
    gpus_per_node: Annotated[
        float, typer.Option(metavar="G", help="ray: GPUs that a node asks for, 0.5 too", rich_help_panel="Ray")
    ] = 0.0,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="ray: let nodes on several machines talk without transport security",
            rich_help_panel="Ray",
        ),
    ] = False,
    page: Page = False,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Run N nodes as daemons over real sockets, on this machine or on Ray. Ctrl-C ends them all; --resume goes on."""
    from p2p_tally.runner.console.progress import Progress
    from p2p_tally.runner.launch.daemons import Daemons, LocalDaemons
    from p2p_tally.runner.launch.launcher import launch as run_daemons
    from p2p_tally.runner.runs.folder import resume_options

    if resume is not None:
        check_beside_resume(given, config, {})
        federation, settings = resume_options(resume, ServiceSettings)
    else:
        federation, settings = collect_options(given, config, ServiceSettings)
        settings = _with_folder(federation, settings)
    where: Daemons = LocalDaemons()
    if is_on_ray(on, engine):
        if page:
            raise ConfigError("--page: accepted with --on local; on Ray the nodes' admin addresses are elsewhere")
        from p2p_tally.runner.ray.cluster import Resources
        from p2p_tally.runner.ray.daemons import RayDaemons

        where = RayDaemons(ray_address, Resources("node", cpus_per_node, gpus_per_node), federation.nodes, insecure)
    with cli_page.page_of_launch(page) as on_admin, Progress(federation.rounds) as progress:
        run = run_daemons(federation, settings, progress.show, resume is not None, where, on_admin)
    _show_run(run, as_json)


@app.command(cls=GroupedCommand)
@takes_options(Federation, DaemonSettings, open_default={"nodes", "topology"})
def node(
    *,
    config: ConfigFile = None,
    as_json: Json = False,
    report: Annotated[bool, typer.Option("--report", hidden=True)] = False,
    listen_fd: Annotated[int | None, typer.Option("--listen-fd", hidden=True)] = None,
    resume_round: Annotated[int | None, typer.Option("--resume-round", hidden=True)] = None,
    given: dict[str, Any],
) -> None:
    """Run one node of a federation: that of its home if it has founded or joined one; otherwise with --peers, which
    are its neighbours, or with --topology all other members."""
    if not report and cli_members.starts_member(given, file_options(config)):
        cli_members.run_member(given, config, as_json)
        return
    federation, settings = collect_options(given, config, DaemonSettings)
    if report:
        settings = settings.as_launched()
    elif federation.link is not None:
        log.warning("--link %s: accepted with simulate; ignored", federation.link)
    membership = "topology" in given or "topology" in file_options(config)
    if not settings.peers and not report:
        log.warning("--peers: none given, so this node learns alone")
    import socket

    from p2p_tally.node.service.daemon import Daemon
    from p2p_tally.node.service.process import run_daemon

    inherited = None if listen_fd is None else socket.socket(fileno=listen_fd)
    daemon = Daemon(
        federation,
        settings,
        membership=membership,
        resume_round=resume_round,
        inherited=inherited,
        on_line=print_json if report else None,
        keep_record=not report,
        on_admin=(lambda address: print_json({"admin": address})) if report else None,
    )
    if report:
        task = daemon.task
        sizes = {
            "classes": task.classes,
            "probes": len(task.probes.examples),
            "test": len(task.test),
            "parameters": len(daemon.learner.parameters),
        }
        print_json({"federation": task.federation.model_dump(mode="json"), "sizes": sizes})
    result = run_daemon(daemon, launched=report)
    kept = not result["finished"] or daemon.keep_model()
    if report or as_json:
        print_json(result)
    else:
        print_end(result, "go on with --resume" if result["resumable"] else "there is no checkpoint to go on from")
    if not kept:
        raise typer.Exit(1)


def _with_folder(federation: Federation, settings: Settings) -> Settings:
    """A run folder of its own where the operator named none."""
    from p2p_tally.learning.methods import method_of
    from p2p_tally.runner.runs.folder import fresh_folder

    if settings.out is not None:
        return settings
    method = method_of(federation).name
    name = f"{method}-{federation.topology.partition(':')[0]}-{federation.nodes}-seed{federation.seed}"
    return settings.model_copy(update={"out": fresh_folder(Path("runs"), name)})


def _show_run(run: "Run", as_json: bool) -> None:
    if as_json:
        print_json(run.summary())
    else:
        from p2p_tally.runner.console.tables import print_run

        print_run(run)


app.command(cls=GraphCommand)(cli_experiments.topology)
app.command(cls=GroupedCommand)(cli_members.found)
app.command(cls=GroupedCommand)(cli_members.join)
for command in (
    *cli_members.COMMANDS,
    cli_evidence.evidence,
    cli_page.status,
    cli_page.page,
    cli_features.features,
    cli_experiments.payload,
    cli_experiments.sweep,
    cli_experiments.report,
    cli_models.predict,
    cli_models.evaluate,
    cli_models.export,
):
    app.command()(command)


def main() -> None:
    """Entry point: an operator's mistake is one line and exit code 2; a fault of the program keeps its traceback."""
    logging.basicConfig(format="p2p-tally: %(levelname)s: %(message)s", level=logging.WARNING)
    logging.addLevelName(logging.WARNING, "warning")
    group, words, environment = typer.main.get_command(app), sys.argv[1:] or ["--help"], FromEnvironment()
    try:
        environment = read_environment(group, words, os.environ)
        if "_P2P_TALLY_COMPLETE" not in os.environ:  # a shell that completes a line shows whatever is said
            for line in unknown_variables(group, os.environ):
                log.warning("%s", line)
        lines_only = not {"--json", "--report"}.isdisjoint(words) or environment.values.get("--json")
        with stdout_for_lines() if lines_only else nullcontext():
            code = group.main(words, "p2p-tally", standalone_mode=False, default_map=environment.default_map)
    except OperatorError as error:
        _fail(environment.blame(str(error)), error.exit_code)
    except UsageError as error:  # an unknown option or command, a missing argument
        _fail(environment.blame(_usage(error)))
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        _fail(f"cannot write {error.filename or 'all files'}: {error.strerror}", 1)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _usage(error: Exception) -> str:
    """click's own message, which names the option."""
    message = getattr(error, "format_message", None)
    return message() if callable(message) else str(error)


def _fail(message: str, code: int = 2) -> None:
    print("p2p-tally: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(code)
