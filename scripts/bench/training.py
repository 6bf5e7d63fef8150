"""What the learner's step costs, compared with a bare torch loop of the same model and batch size: a ratio per model.

The bare loop has one batch ready as floats and does only forward, backward and AdamW (torch's own, fused). The learner
draws its batch from stored uint8 images or uint16 tokens, crops, flips and normalises; so its time includes loading,
and that of the bare loop does not. Each side is a process of its own, so that neither affects the other's memory
allocator, and they alternate in short turns. CPU time is compared, because other work on the machine affects it least.

    python scripts/bench/training.py [--seconds 30] [--models cnn,resnet18,tinygpt]
"""

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection

import numpy as np
import torch
from torch.nn import functional as F

from p2p_tally.config import Federation
from p2p_tally.ids import NodeName
from p2p_tally.learning import models
from p2p_tally.learning.data import Arrays, Augment, Examples, Normalise
from p2p_tally.learning.data.images import PerChannel, crop_and_flip
from p2p_tally.learning.data.probes import ProbePool
from p2p_tally.learning.data.tokens import every_window
from p2p_tally.learning.learner import Learner

WANTED = 1.05
IMAGES = 10_000
TOKENS = 400_000  # about as many as one of eight peers has of WikiText-2


@dataclass
class Case:
    """A model as the paper trains it: batch, inputs, classes, and how its data is stored."""

    federation: Federation
    input_shape: tuple[int, ...]
    classes: int
    private: Examples
    normalise: Normalise | None = None
    augment: Augment | None = None


def image_case(model: str, steps: int) -> Case:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (IMAGES, 3, 32, 32), dtype=torch.uint8, generator=generator)
    y = torch.randint(10, (IMAGES,), generator=generator)
    constants = PerChannel((0.5,) * 3, (0.25,) * 3)
    federation = Federation(model=model, batch=32, local_steps=steps)
    return Case(federation, (3, 32, 32), 10, Arrays(x, y), constants, crop_and_flip)


def text_case(model: str, steps: int) -> Case:
    tokens = np.random.default_rng(0).integers(2048, size=TOKENS).astype(np.uint16)
    federation = Federation(model=model, batch=16, local_steps=steps, lr=3e-4, weight_decay=0.01)
    return Case(federation, (256,), 2048, every_window(tokens, 256))


# The number is steps per turn: a turn takes about a third of a second, or is one step.
CASES: dict[str, Callable[[], Case]] = {
    "cnn": lambda: image_case("cnn", 5),
    "resnet18": lambda: image_case("resnet18", 2),
    "tinygpt": lambda: text_case("tinygpt", 1),
}


def learner_turn(case: Case) -> Callable[[], None]:
    model = models.build(case.federation, "", case.input_shape, case.classes, seed=0)
    probes = ProbePool(case.private, 16, 0)
    learner = Learner(
        NodeName("node-0"),
        case.federation,
        model,
        case.classes,
        case.private,
        probes,
        case.private,
        normalise=case.normalise,
        augment=case.augment,
    )
    return learner.train


def bare_turn(case: Case) -> Callable[[], None]:
    settings = case.federation
    model = models.build(settings, "", case.input_shape, case.classes, seed=0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, fused=True)
    x, y = case.private.take(torch.arange(settings.batch))
    assert y is not None
    x = case.normalise(x) if case.normalise else x.contiguous()
    y = y.flatten()

    def turn() -> None:
        for _ in range(settings.local_steps):
            optimiser.zero_grad()
            F.cross_entropy(model(x).flatten(0, -2), y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    return turn


TURNS: dict[str, Callable[[Case], Callable[[], None]]] = {"bare": bare_turn, "learner": learner_turn}


def worker(name: str, side: str, pipe: Connection) -> None:
    """Take a turn when asked, and answer with its seconds. A first turn for warm-up is not measured."""
    torch.set_num_threads(1)
    turn = TURNS[side](CASES[name]())
    turn()
    pipe.send(0.0)
    while pipe.recv():
        started = time.process_time()
        turn()
        pipe.send(time.process_time() - started)


# Depending on the memory layout, glibc returns memory to the system at every step and asks for it again, or at none.
# That can take a fifth of a step. With these settings it does not, on both sides.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}


def measure(name: str, seconds: float) -> float:
    """The median over the turns of (learner's time) / (bare loop's time)."""
    os.environ.update(ALLOCATOR)
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    for side in TURNS:
        pipes[side], theirs = context.Pipe()
        context.Process(target=worker, args=(name, side, theirs), daemon=True).start()
        theirs.close()  # then a worker that dies ends the wait for it
        pipes[side].recv()
    times: dict[str, list[float]] = {side: [] for side in TURNS}
    end = time.perf_counter() + seconds
    while len(times["bare"]) < 5 or time.perf_counter() < end:
        order = list(TURNS) if len(times["bare"]) % 2 else list(reversed(TURNS))
        for side in order:
            pipes[side].send(True)
            times[side].append(pipes[side].recv())
    for pipe in pipes.values():
        pipe.send(False)
    ratio = statistics.median(a / b for a, b in zip(times["learner"], times["bare"], strict=True))
    steps = CASES[name]().federation.local_steps
    bare, learner = (1e3 * statistics.median(times[side]) / steps for side in ("bare", "learner"))
    print(
        f"{name}: bare {bare:.1f} ms a step, learner {learner:.1f} ms, ratio {ratio:.3f} "
        f"({len(times['bare'])} turns; at most {WANTED} wanted)",
        flush=True,
    )
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30, help="for each model, at least five turns")
    parser.add_argument("--models", default=",".join(CASES))
    arguments = parser.parse_args()
    if "resnet18" in arguments.models.split(",") and find_spec("torchvision") is None:
        parser.error("resnet18 needs torchvision: pip install 'p2p-tally[vision]', or give --models cnn,tinygpt")
    ratios = [measure(name, arguments.seconds) for name in arguments.models.split(",")]
    print(f"learner / bare step: largest ratio {max(ratios):.3f}")


if __name__ == "__main__":
    main()
