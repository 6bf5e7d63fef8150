"""What a ballot costs: bytes and milliseconds for each way to write it, beside a copy of the same votes.

The votes are random: 16 and 2,000 labelled votes of ten classes from peers of a given accuracy, and 8,192 votes from a
vocabulary of 2,048 that mostly depend on the token before, as with a small language model; these with and without
labels. `copy` is a memcpy of the votes at two bytes each. The operations alternate in short turns, so that a slow phase
of the machine affects all of them.

    python scripts/bench/ballots.py [--turns 40]
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from p2p_tally.protocol.coding import decode_coded, encode_coded
from p2p_tally.protocol.packed import decode_packed, encode_packed

Votes = tuple[np.ndarray, int, np.ndarray | None]  # votes, classes, labels


def labelled(rng: np.random.Generator, count: int, accuracy: float) -> Votes:
    labels = rng.integers(0, 10, count)
    wrong = (labels + rng.integers(1, 10, count)) % 10
    return np.where(rng.random(count) < accuracy, labels, wrong), 10, labels


def text(rng: np.random.Generator) -> Votes:
    count, classes = 8192, 2048
    zipf = 1 / np.arange(1, classes + 1)
    zipf /= zipf.sum()
    labels = rng.choice(classes, count, p=zipf)
    successor = rng.choice(classes, classes, p=zipf)
    votes = rng.choice(classes, count, p=zipf)
    follow, right = rng.random(count) < 0.65, rng.random(count) < 0.1
    votes[follow] = successor[np.roll(labels, 1)[follow]]
    votes[right] = labels[right]
    return votes, classes, labels


def ways(case: Votes) -> tuple[dict[str, Callable[[], object]], int, int]:
    """The operations to time for a case, and its packed and coded sizes."""
    votes, classes, labels = case
    count = len(votes)
    two_bytes = votes.astype(np.uint16)
    packed, coded = encode_packed(votes, classes), encode_coded(votes, classes, labels)
    timed: dict[str, Callable[[], object]] = {
        "copy": two_bytes.copy,
        "pack": lambda: encode_packed(votes, classes),
        "unpack": lambda: decode_packed(packed, count, classes),
        "encode": lambda: encode_coded(votes, classes, labels),
        "decode": lambda: decode_coded(coded, count, classes, labels),
    }
    return timed, len(packed), len(coded)


def milliseconds(timed: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(turns):
        for name, call in timed.items():
            started = time.perf_counter()
            call()
            taken[name].append(1000 * (time.perf_counter() - started))
    return {name: statistics.median(times) for name, times in taken.items()}


def run_of_sixteens(rng: np.random.Generator, ballots: int = 2000) -> float:
    """Mean coded bytes of 16-vote ballots in a run whose peers improve from 75 % right to 95 %."""
    sizes = [len(encode_coded(*labelled(rng, 16, accuracy))) for accuracy in np.linspace(0.75, 0.95, ballots)]
    return statistics.mean(sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=40, help="times each is measured [default: 40]")
    turns: int = parser.parse_args().turns
    rng = np.random.default_rng(0)
    votes, classes, labels = text(rng)
    cases: dict[str, Votes] = {
        "16 of 10, 95 % right": labelled(rng, 16, 0.95),
        "2000 of 10, 75 % right": labelled(rng, 2000, 0.75),
        "2000 of 10, 95 % right": labelled(rng, 2000, 0.95),
        "8192 of 2048, labels": (votes, classes, labels),
        "8192 of 2048, no labels": (votes, classes, None),
    }
    print(f"{'votes':24}{'packed B':>9}{'coded B':>9}{'ratio':>7}", end="")
    print("".join(f"{name + ' ms':>11}" for name in ("copy", "pack", "unpack", "encode", "decode")), end="")
    print(f"{'enc/copy':>10}{'dec/copy':>10}")
    for name, case in cases.items():
        timed, packed, coded = ways(case)
        ms = milliseconds(timed, turns)
        print(f"{name:24}{packed:9}{coded:9}{coded / packed:7.2f}", end="")
        print("".join(f"{value:11.4f}" for value in ms.values()), end="")
        print(f"{ms['encode'] / ms['copy']:10.0f}{ms['decode'] / ms['copy']:10.0f}")
    mean = run_of_sixteens(rng)
    print(f"a run of 16-vote ballots, 75 to 95 % right: {mean:.2f} bytes a ballot, {mean / 8:.2f} of packed")


if __name__ == "__main__":
    main()
