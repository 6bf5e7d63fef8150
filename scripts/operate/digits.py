"""Data for the three members of compose.yml: each knows other digits. Usage: python digits.py FOLDER"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

FEDERATION = """\
topology = "mesh"
rounds = 400
merge_every = 20
probes = "npz:{folder}/probes.npz"
"""


def main(folder: Path) -> None:
    x, y = load_digits(return_X_y=True)
    x = ((x - x.mean()) / x.std()).astype("float32")
    order = np.random.default_rng(0).permutation(len(x))
    test, probes, private = order[:400], order[400:600], order[600:]
    folder.mkdir(parents=True, exist_ok=True)
    for name, few, many in (("alice", 0, 5), ("bob", 3, 8), ("carol", 5, 10)):
        mine = private[(y[private] >= few) & (y[private] < many)]
        np.savez(folder / f"{name}.npz", x_train=x[mine], y_train=y[mine], x_test=x[test], y_test=y[test])
    np.savez(folder / "probes.npz", x=x[probes], y=y[probes])
    (folder / "federation.toml").write_text(FEDERATION.format(folder=folder), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
