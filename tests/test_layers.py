"""Imports point down only, as drawn in the architecture; and the walker that says so is itself put to the test."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"p2p_tally": "p2p_tally", "runner": "p2p_tally.runner", "topologies": "p2p_tally.topologies"}

# A module belongs to the layer with the longest prefix of its name.
LAYERS = {
    "p2p_tally": "facade",
    "p2p_tally.__main__": "cli",
    "p2p_tally.cli": "cli",
    "p2p_tally.cli_environment": "cli",
    "p2p_tally.cli_evidence": "cli",
    "p2p_tally.cli_experiments": "cli",
    "p2p_tally.cli_features": "cli",
    "p2p_tally.cli_help": "cli",
    "p2p_tally.cli_members": "cli",
    "p2p_tally.cli_models": "cli",
    "p2p_tally.cli_page": "cli",
    "p2p_tally.cli_options": "cli",
    "p2p_tally.runner": "runner",
    "p2p_tally.node": "node",
    "p2p_tally.page": "page",
    "p2p_tally.learning": "learning",
    "p2p_tally.protocol": "protocol",
    "p2p_tally.defence": "defence",
    "p2p_tally.topologies": "topologies",
    "p2p_tally.trust": "trust",
    "p2p_tally.tracking": "tracking",
    "p2p_tally.attacks": "attacks",
    "p2p_tally.config": "base",
    "p2p_tally.defence_options": "base",
    "p2p_tally.errors": "base",
    "p2p_tally.federation": "base",
    "p2p_tally.files": "base",
    "p2p_tally.ids": "base",
    "p2p_tally.json_lines": "base",
    "p2p_tally.option_types": "base",
    "p2p_tally.options": "base",
    "p2p_tally.own_objects": "base",
    "p2p_tally.round_options": "base",
    "p2p_tally.voting_options": "base",
}

# What each layer may import of ours besides itself.
BELOW = {
    "facade": {"base"},  # what is heavier it loads when it is asked for
    "cli": {"facade", "runner", "node", "page", "learning", "protocol", "topologies", "trust", "base"},
    "runner": {"attacks", "node", "page", "learning", "protocol", "defence", "topologies", "tracking", "base"},
    "node": {"attacks", "page", "learning", "protocol", "defence", "topologies", "tracking", "trust", "base"},
    "attacks": {"learning", "protocol", "base"},
    "page": {"base"},
    "learning": {"defence", "topologies", "base"},
    "protocol": {"topologies", "base"},
    "defence": {"base"},
    "topologies": set(),
    "tracking": {"base"},
    "trust": {"base"},
    "base": set(),
}

NETWORK = {"asyncio", "socket", "socketserver", "selectors", "aiohttp", "uvloop"}
CLOCK = {"time", "datetime", "sched"}
HEAVY = {"torch", "torchvision", "matplotlib", "sklearn", "scipy", "networkx", "safetensors", "aiohttp"}

# What of others' a layer must not import at all.
BANNED = {
    "protocol": NETWORK | CLOCK | {"torch", "threading", "random"},
    "learning": NETWORK,
    "page": {"torch", "time", "datetime"},
    "defence": NETWORK | CLOCK | {"torch", "random"},
    "topologies": NETWORK | CLOCK | {"torch"},
    "trust": NETWORK | {"time", "torch"},
    "base": NETWORK | CLOCK | {"torch"},
}


@dataclass(frozen=True)
class Import:
    line: int
    target: str  # the module, or a name in it
    lazy: bool  # only when a function is called, or for the type checker


def layer_of(module: str) -> str | None:
    """The layer of one of our modules, None for others'."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        layer = LAYERS.get(".".join(parts[:end]))
        if layer is not None:
            return layer
    return None


def imports(source: str, module: str, is_package: bool) -> Iterator[Import]:
    """Every import of a source, however deep it stands and whatever its form."""

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        match node:
            case ast.Import():
                for name in node.names:
                    yield Import(node.lineno, name.name, lazy)
            case ast.ImportFrom():
                origin = node.module or ""
                if node.level:
                    above = module.split(".") if is_package else module.split(".")[:-1]
                    above = above[: len(above) - node.level + 1]
                    origin = ".".join([*above, *filter(None, [origin])])
                for name in node.names:
                    yield Import(node.lineno, f"{origin}.{name.name}", lazy)
            case ast.Call(func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module")):
                for argument in node.args[:1]:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        yield Import(node.lineno, argument.value, lazy)
        for child in ast.iter_child_nodes(node):
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typing = isinstance(node, ast.If) and child in node.body and "TYPE_CHECKING" in ast.unparse(node.test)
            yield from walk(child, lazy or inside or typing)

    yield from walk(ast.parse(source), lazy=False)


def complaints(root: Path) -> list[str]:
    """Every arrow in the tree that points up, sideways or at what a layer must not know."""
    found = []
    for path, module, is_package in modules(root):
        own = layer_of(module)
        assert own is not None, f"{module} is in no layer: say in LAYERS where it belongs"
        for arrow in imports(path.read_text(), module, is_package):
            target = layer_of(arrow.target)
            where = f"{path.relative_to(root)}:{arrow.line}: {own} imports {arrow.target}"
            if target is None:
                if arrow.target.split(".")[0] in BANNED.get(own, ()):
                    found.append(where)
            elif target != own and target not in BELOW[own]:
                found.append(f"{where} of {target}")
            if own in ("cli", "facade") and not arrow.lazy and arrow.target.split(".")[0] in HEAVY:
                found.append(f"{where} before it is needed")
            if own == "cli" and not arrow.lazy and target in ("runner", "node", "page", "learning", "topologies"):
                found.append(f"{where} before it is needed")
    return found


def modules(root: Path) -> Iterator[tuple[Path, str, bool]]:
    """Every source file, the module that it is, and whether it is a package's own. Links are not followed."""
    for folder, package in FOLDERS.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            yield path, ".".join([package, *(parts[:-1] if is_package else parts)]), is_package


def test_imports_point_down_only() -> None:
    assert complaints(ROOT) == []


def test_the_walker_sees_this_project() -> None:
    """An empty walk would find nothing wrong either."""
    seen: dict[str, set[str | None]] = {}
    for path, module, is_package in modules(ROOT):
        targets = {layer_of(arrow.target) for arrow in imports(path.read_text(), module, is_package)}
        seen.setdefault(layer_of(module) or "", set()).update(targets)
    assert set(seen) == set(BELOW)
    assert {"learning", "protocol", "topologies", "base"} <= seen["node"]
    assert {"node", "learning", "protocol"} <= seen["runner"]
    assert {"runner", "node", "base"} <= seen["cli"]
    assert {"base"} <= seen["protocol"] & seen["learning"]


def test_the_layers_are_in_the_order_of_the_architecture() -> None:
    order = [
        "cli",
        "runner",
        "node",
        "page",
        "learning",
        "protocol",
        "defence",
        "topologies",
        "tracking",
        "trust",
        "base",
    ]
    for layer, below in BELOW.items():
        assert layer == "facade" or below <= {*order[order.index(layer) + 1 :], "facade"}
    assert "protocol" not in BELOW["learning"] and "learning" not in BELOW["protocol"]
    assert BELOW["topologies"] == BELOW["base"] == set()


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        (
            "p2p_tally/protocol/x.py",
            "import p2p_tally.node.links.link",
            "protocol imports p2p_tally.node.links.link of node",
        ),
        ("p2p_tally/protocol/x.py", "from p2p_tally import node", "protocol imports p2p_tally.node of node"),
        (
            "p2p_tally/protocol/x.py",
            "from p2p_tally.node import link",
            "protocol imports p2p_tally.node.link of node",
        ),
        ("p2p_tally/protocol/x.py", "from ..node import link", "protocol imports p2p_tally.node.link of node"),
        ("p2p_tally/protocol/__init__.py", "from ..node import a", "protocol imports p2p_tally.node.a of node"),
        ("p2p_tally/protocol/x.py", "from p2p_tally import Node", "protocol imports p2p_tally.Node of facade"),
        ("p2p_tally/protocol/x.py", "import p2p_tally.learning", "protocol imports p2p_tally.learning of learning"),
        ("p2p_tally/learning/a/x.py", "import p2p_tally.protocol", "learning imports p2p_tally.protocol of protocol"),
        ("p2p_tally/learning/x.py", "from p2p_tally.runner import a", "learning imports p2p_tally.runner.a of runner"),
        (
            "p2p_tally/node/x.py",
            "import p2p_tally.runner.launch.launcher as l",
            "node imports p2p_tally.runner.launch.launcher of runner",
        ),
        ("p2p_tally/node/x.py", "from p2p_tally.cli import app", "node imports p2p_tally.cli.app of cli"),
        ("runner/x.py", "import p2p_tally.cli", "runner imports p2p_tally.cli of cli"),
        ("topologies/x.py", "import p2p_tally.errors", "topologies imports p2p_tally.errors of base"),
        ("p2p_tally/config.py", "import p2p_tally.learning", "base imports p2p_tally.learning of learning"),
        (
            "p2p_tally/config.py",
            "from p2p_tally.topologies import build",
            "base imports p2p_tally.topologies.build of topologies",
        ),
        ("p2p_tally/protocol/x.py", "import torch", "protocol imports torch"),
        ("p2p_tally/protocol/x.py", "import torch.nn as nn", "protocol imports torch.nn"),
        ("p2p_tally/protocol/x.py", "from time import monotonic", "protocol imports time.monotonic"),
        ("p2p_tally/protocol/x.py", "import numpy, asyncio", "protocol imports asyncio"),
        ("p2p_tally/protocol/x.py", "import socket", "protocol imports socket"),
        ("p2p_tally/learning/x.py", "import asyncio.queues", "learning imports asyncio.queues"),
        ("p2p_tally/learning/x.py", "from socket import socket", "learning imports socket.socket"),
        ("p2p_tally/learning/x.py", "import aiohttp", "learning imports aiohttp"),
        # However it is hidden.
        ("p2p_tally/protocol/x.py", "def f():\n    import torch", "protocol imports torch"),
        ("p2p_tally/protocol/x.py", "class A:\n    async def f(self):\n        import time", "protocol imports time"),
        ("p2p_tally/protocol/x.py", "try:\n    import torch\nexcept ImportError: pass", "protocol imports torch"),
        (
            "p2p_tally/protocol/x.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p2p_tally.node import link",
            "protocol imports p2p_tally.node.link of node",
        ),
        (
            "p2p_tally/protocol/x.py",
            "import importlib\nimportlib.import_module('p2p_tally.node.node')",
            "protocol imports p2p_tally.node.node of node",
        ),
        ("p2p_tally/learning/x.py", "__import__('asyncio')", "learning imports asyncio"),
        # The command line may import everything, but not at once.
        (
            "p2p_tally/cli.py",
            "import p2p_tally.runner.simulation.simulate",
            "cli imports p2p_tally.runner.simulation.simulate before it is needed",
        ),
        ("p2p_tally/cli.py", "import torch", "cli imports torch before it is needed"),
        ("p2p_tally/cli.py", "from p2p_tally.node import a", "cli imports p2p_tally.node.a before it is needed"),
        ("p2p_tally/cli.py", "if True:\n    import torch", "cli imports torch before it is needed"),
        ("p2p_tally/__init__.py", "import p2p_tally.node.node", "facade imports p2p_tally.node.node of node"),
    ],
)
def test_a_bad_arrow_is_found(path: str, source: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
    (found,) = complaints(tmp_path)
    line = 1 + source[: source.rindex("import")].count("\n")
    assert found == f"{path}:{line}: {complaint}"


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("p2p_tally/protocol/x.py", "import numpy, msgpack\nfrom p2p_tally.errors import FrameError"),
        ("p2p_tally/protocol/x.py", "from . import frames\nfrom .messages import Vote\nfrom ..ids import NodeName"),
        (
            "p2p_tally/learning/x.py",
            "import torch\nfrom p2p_tally.config import Federation\nfrom p2p_tally import topologies",
        ),
        (
            "p2p_tally/node/x.py",
            "import asyncio, time\nfrom p2p_tally import learning, protocol, topologies",
        ),
        (
            "p2p_tally/cli.py",
            "def f():\n    import torch\n    from p2p_tally.runner.simulation.simulate import simulate",
        ),
        (
            "p2p_tally/cli.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p2p_tally.runner.runs.run import Run",
        ),
        ("runner/x.py", "import torch\nfrom p2p_tally.node import node\nfrom ..runner import folder"),
        ("topologies/x.py", "import networkx\nfrom .errors import TopologyError"),
        ("p2p_tally/protocol/x.py", "text = 'import torch'\n# import torch"),
    ],
)
def test_a_good_arrow_is_not(path: str, source: str, tmp_path: Path) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
    assert complaints(tmp_path) == []


def loaded_by(statement: str, environment: dict[str, str]) -> set[str]:
    """The top-level modules that a fresh interpreter has after a statement."""
    program = f"import sys\n{statement}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment, cwd=ROOT
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["p2p_tally", "p2p_tally.cli"])
def test_the_command_line_loads_nothing_heavy(module: str, quiet_environment: dict[str, str]) -> None:
    loaded = loaded_by(f"import {module}", quiet_environment)
    assert "p2p_tally" in loaded
    assert not loaded & HEAVY


def test_the_protocol_loads_no_torch_and_no_event_loop(quiet_environment: dict[str, str]) -> None:
    """Also not by way of others: what is imported is all there is."""
    modules = sorted(path.stem for path in (ROOT / "p2p_tally" / "protocol").glob("*.py") if path.stem != "__init__")
    assert "frames" in modules and "coding" in modules
    statement = "import " + ", ".join(f"p2p_tally.protocol.{module}" for module in modules)
    loaded = loaded_by(statement, quiet_environment)
    assert {"numpy", "msgpack"} <= loaded
    assert not loaded & {"torch", "aiohttp", "asyncio", "networkx", "uvloop"}
    assert "torch" in loaded_by("import p2p_tally.learning.learner", quiet_environment)  # it would be seen
