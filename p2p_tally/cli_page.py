"""Looking at running nodes: `p2p-tally status`, `p2p-tally page`, and --page of a simulation and of a launch."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from p2p_tally.cli_options import Json, print_json

if TYPE_CHECKING:
    from p2p_tally.runner.launch.launcher import OnAdmin
    from p2p_tally.runner.simulation.simulate import Watch


Urls = Annotated[
    list[str], typer.Argument(help="admin addresses of nodes, e.g. http://127.0.0.1:7101 or unix:/run/alice.sock")
]
TokenFile = Annotated[
    Path | None, typer.Option("--admin-token-file", metavar="FILE", help="the token that the nodes ask for")
]


def status(
    urls: Urls,
    token_file: TokenFile = None,
    keep: Annotated[bool, typer.Option("--watch", help="keep the table current until Ctrl-C")] = False,
    as_json: Json = False,
) -> None:
    """Show where running nodes are. The exit code is 1 where one does not answer."""
    import asyncio

    from p2p_tally.runner.console.status import ask, print_status, watch

    token = _token(token_file)
    if keep and not as_json:
        asyncio.run(watch(urls, token))
        return
    nodes = asyncio.run(ask(urls, token))
    if as_json:
        print_json({"nodes": nodes})
    else:
        print_status(nodes)
    if any("error" in node for node in nodes):
        raise typer.Exit(1)


def page(
    urls: Urls,
    token_file: TokenFile = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="where the page is served; port 0: any that is free")
    ] = "127.0.0.1:7100",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="serve it beyond this machine, to everybody who can reach it")
    ] = False,
) -> None:
    """Serve one live page for all these nodes, until Ctrl-C."""
    from p2p_tally.runner.page.launched import serve_page

    serve_page(urls, listen, insecure, _token(token_file))


def _token(path: Path | None) -> str | None:
    from p2p_tally.node.service.admin_address import read_token

    return None if path is None else read_token(path)


def page_of_simulation(wanted: bool) -> "AbstractContextManager[Watch | None]":
    if not wanted:
        return nullcontext()
    from p2p_tally.runner.page.simulated import simulation_page

    return simulation_page()


def page_of_launch(wanted: bool) -> "AbstractContextManager[OnAdmin | None]":
    if not wanted:
        return nullcontext()
    from p2p_tally.runner.page.launched import launch_page

    return launch_page()
