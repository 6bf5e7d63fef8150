"""What would make many CNNs train faster on a CPU: CPU seconds of the same local steps, done in different ways.

One after the other, as the exact engine does; the same with channels last; and all at once by `torch.vmap`, which makes
grouped convolutions, as the stacked engine does. Then whole runs: exact with one worker, exact with two, stacked. The
ways take turns, and the median ratio to the first counts. The images are random: only time is measured.

    python scripts/bench/cnn.py [--models cnn,cnn-half] [--peers 8] [--turns 5] [--steps 5]

On a machine that others use too, only CPU seconds are of use. Two workers take no less of these: the wall clock tells
what they gain, on two free cores.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from p2p_tally import Federation, simulate
from p2p_tally.config import SimulationSettings
from p2p_tally.ids import ranked_names
from p2p_tally.learning.setup import make_model, prepare

CLASSES, SIDE = 10, 32
LEARNING_RATE = 0.01


def images(folder: Path) -> str:
    """Random images in a file, as --data takes it."""
    draw = np.random.default_rng(0)
    parts = {
        f"{kind}_{part}": draw.random((count, 3, SIDE, SIDE), np.float32)
        if kind == "x"
        else draw.integers(CLASSES, size=count)
        for part, count in (("train", 2000), ("test", 200))
        for kind in ("x", "y")
    }
    np.savez(folder / "images.npz", **parts)
    return f"npz:{folder / 'images.npz'}"


def one_by_one(models: list[nn.Module], x: torch.Tensor, y: torch.Tensor) -> None:
    for model, own, labels in zip(models, x, y, strict=True):
        gradients = torch.autograd.grad(cross_entropy(model(own), labels), list(model.parameters()))
        with torch.no_grad():
            torch._foreach_add_(list(model.parameters()), gradients, alpha=-LEARNING_RATE)


class Together:
    """All models in one call."""

    def __init__(self, models: list[nn.Module]) -> None:
        self.model = deepcopy(models[0])
        self.own = {
            key: torch.stack([dict(model.named_parameters())[key].detach() for model in models]).requires_grad_()
            for key, _ in models[0].named_parameters()
        }
        self.call = torch.vmap(lambda own, x: functional_call(self.model, own, (x,)))

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        logits = self.call(self.own, x)  # [n, B, C]
        loss = cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum") / y.shape[1]
        gradients = torch.autograd.grad(loss, list(self.own.values()))
        with torch.no_grad():
            torch._foreach_add_(list(self.own.values()), gradients, alpha=-LEARNING_RATE)


def steps(federation: Federation, turns: int) -> None:
    """Bare local steps of all peers."""
    task = prepare(federation)
    names = ranked_names(federation.nodes)
    plain = [make_model(task, name, rank) for rank, name in enumerate(names)]
    last = [deepcopy(model).to(memory_format=torch.channels_last) for model in plain]  # type: ignore[call-overload]
    together = Together(plain)
    x = torch.rand(federation.nodes, federation.batch, 3, SIDE, SIDE)
    y = torch.randint(CLASSES, (federation.nodes, federation.batch))
    x_last = torch.stack([own.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1) for own in x])
    ways: dict[str, Callable[[], None]] = {
        "one by one": lambda: one_by_one(plain, x, y),
        "one by one, channels last": lambda: one_by_one(last, x_last.permute(0, 1, 4, 2, 3), y),
        "grouped convolution": lambda: together.step(x, y),
    }
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(turns + 1):
        for way, work in ways.items():
            began = time.process_time()
            for _ in range(federation.local_steps):
                work()
            if turn:  # the first turn warms caches and allocators up
                taken[way].append(time.process_time() - began)
    report(f"{federation.model}, {federation.nodes} peers, a local step of each", taken, federation.local_steps)


def runs(federation: Federation, turns: int) -> None:
    """Whole runs, with votes and evaluations."""
    ways = {
        "exact": SimulationSettings(engine="exact"),
        "exact, 2 workers": SimulationSettings(engine="exact", workers=2),
        "stacked": SimulationSettings(engine="stacked", workers=1),
    }
    cpu: dict[str, list[float]] = {way: [] for way in ways}
    wall: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(turns + 1):
        for way, settings in ways.items():
            began, began_cpu = time.perf_counter(), time.process_time()
            simulate(federation, settings)
            if turn:
                cpu[way].append(time.process_time() - began_cpu)
                wall[way].append(time.perf_counter() - began)
    report(f"{federation.model}, {federation.nodes} peers, a round in CPU seconds", cpu, federation.rounds)
    report(f"{federation.model}, {federation.nodes} peers, a round by the clock", wall, federation.rounds)


def report(what: str, taken: dict[str, list[float]], times: int) -> None:
    print(what)
    (_, first), *_ = taken.items()
    for way, seconds in taken.items():
        ratio = statistics.median(own / base for own, base in zip(seconds, first, strict=True))
        print(f"  {way:26} {1000 * statistics.median(seconds) / times:8.1f} ms, {ratio:.2f} of the first", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="cnn,cnn-half")
    parser.add_argument("--peers", type=int, default=8)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data = images(Path(folder))
        for model in arguments.models.split(","):
            federation = Federation(
                nodes=arguments.peers, rounds=4, warmup=0, merge_every=0, data=data, model=model, batch=16,
                local_steps=arguments.steps, partition="iid", eval_every=4, probe_count=200,
            )  # fmt: skip
            steps(federation, arguments.turns)
            runs(federation, arguments.turns)


if __name__ == "__main__":
    main()
