"""Federations whose links are TLS by pinned fingerprints, in one process."""

import asyncio
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import Any

import pytest
from conftest import member_options
from steady_time import SteadyLoop

from p2p_tally.config import DaemonSettings, Federation
from p2p_tally.ids import ranked_names
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.trust.identity import Identity, load_identity, make_identity

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


def run_on(loop: str, work: Coroutine[Any, Any, None]) -> None:
    factory = SteadyLoop if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)


def homes(names: list[str], folder: Path) -> dict[str, Identity]:
    """The keys of these nodes, each in a home of its own."""
    return {name: load_identity(folder / name) or make_identity(folder / name) for name in names}


def secure_options(
    federation: Federation, out: Path, dial_only: Collection[str] = (), **options: Any
) -> list[tuple[dict[str, Any], Any]]:
    """As member_options, with fingerprints; these have no address."""
    keys = homes(ranked_names(federation.nodes), out / "homes")
    found = []
    for values, listener in member_options(federation, out, **options):
        peers = [item.partition("=") for item in values["peers"].split(",")]
        pinned = [
            f"{name}={'dial-only' if name in dial_only else address}#{keys[name].fingerprint}"
            for name, _, address in peers
        ]
        values |= {"peers": ",".join(pinned), "home": out / "homes" / values["name"]}
        if values["name"] in dial_only:
            listener.close()
            values["dial_only"] = True
        found.append((values, None if values["name"] in dial_only else listener))
    return found


def make_secure_daemons(
    federation: Federation, out: Path, dial_only: Collection[str] = (), **options: Any
) -> list[Daemon]:
    return [
        Daemon(federation, DaemonSettings.parse(values), membership=True, inherited=listener)
        for values, listener in secure_options(federation, out, dial_only, **options)
    ]
