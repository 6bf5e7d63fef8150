"""The job that all systems get: digits on 8 nodes, the same model, optimiser and steps, averaged every round.

It is imported in the environment of each system, so it needs numpy and torch alone. One pass over a node's 160
examples in batches of 16 is a round: ten steps. That is how systems that count in epochs count it.
"""

import contextlib
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

NODES = 8
BATCH = 16
STEPS = 10  # of a node in a round
TRAIN = NODES * STEPS * BATCH
SPARE = 16  # p2p-tally sets some examples apart as probes, which FedAvg does not use; no system trains on them
LEARNING_RATE, WEIGHT_DECAY = 0.01, 5e-4

# Where the programs find the data and put their marks.
DATA, MARKS = "PEERS_DATA", "PEERS_MARKS"

Examples = tuple[Tensor, Tensor]


def write_data(path: Path) -> None:
    """The digits of scikit-learn, which only the environment of p2p-tally has."""
    from sklearn.datasets import load_digits  # noqa: PLC0415

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = ((x[order] - x.mean()) / x.std()).astype(np.float32), y[order].astype(np.int64)
    train = TRAIN + SPARE
    np.savez(path, x_train=x[:train], y_train=y[:train], x_test=x[train:], y_test=y[train:])


def shard(node: int) -> Examples:
    with np.load(os.environ[DATA]) as file:
        mine = slice(node * STEPS * BATCH, (node + 1) * STEPS * BATCH)
        return torch.from_numpy(file["x_train"][mine]), torch.from_numpy(file["y_train"][mine])


def test_set() -> Examples:
    with np.load(os.environ[DATA]) as file:
        return torch.from_numpy(file["x_test"]), torch.from_numpy(file["y_test"])


def make_model() -> nn.Sequential:
    """64-64-10: 4,810 parameters. All nodes begin with the same."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def make_optimiser(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)


def train(model: nn.Module, optimiser: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    """The steps of one node in one round."""
    for batch in torch.randperm(len(x)).split(BATCH):
        optimiser.zero_grad()
        F.cross_entropy(model(x[batch]), y[batch]).backward()
        optimiser.step()


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """In per cent."""
    with torch.no_grad():
        return 100 * (model(x).argmax(-1) == y).float().mean().item()


def mark(round: int, accuracy: float | None = None, ledger: float | None = None) -> None:
    """Note that a round is complete. `ledger`: the bytes that the system itself has counted so far, over all nodes."""
    counted = {"at": time.monotonic(), "processor": _processor(), "loopback": _loopback()}
    line = {"round": round, "accuracy": accuracy, "ledger": ledger} | counted
    with Path(os.environ[MARKS]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _processor() -> float:
    """Processor seconds of all processes of this process namespace, ended ones included."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended: its parent has its time
            # After the name in brackets; its own time in user and system mode, and that of children it waited for.
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _loopback() -> int:
    """Bytes over the loopback device of this network namespace, headers included."""
    for line in Path("/proc/self/net/dev").read_text(encoding="utf-8").splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[0])
    return 0
