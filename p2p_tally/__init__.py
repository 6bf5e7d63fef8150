"""p2p-tally: peers that learn together by voting.

    from p2p_tally import Federation, simulate
    run = simulate(Federation(nodes=8, rounds=100))
    model = run.models[0]                          # or, from a file: load("runs/.../node-0.safetensors")

Everything heavy is loaded when it is first asked for.
"""

import importlib
from typing import Any

from p2p_tally.config import Federation, NodeSettings

__version__ = "0.2.0"

_LAZY = {
    "simulate": "p2p_tally.runner.simulation.simulate",
    "Run": "p2p_tally.runner.runs.run",
    "load": "p2p_tally.learning.saved.loaded",
    "Daemon": "p2p_tally.node.service.embedded",
    "Node": "p2p_tally.node.node",
    "Source": "p2p_tally.learning.data",
    "Arrays": "p2p_tally.learning.data",
    "Method": "p2p_tally.learning.methods",
    "Sends": "p2p_tally.learning.methods",
    "METHODS": "p2p_tally.learning.methods",
    "votes": "p2p_tally.learning.answers",
    "soft_labels": "p2p_tally.learning.answers",
    "top_k": "p2p_tally.learning.answers",
}

__all__ = [
    "METHODS",
    "Arrays",
    "Daemon",
    "Federation",
    "Method",
    "Node",
    "NodeSettings",
    "Run",
    "Sends",
    "Source",
    "load",
    "simulate",
    "soft_labels",
    "top_k",
    "votes",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
