"""Lies about parameters, as functions of vectors, as in ByzFL: any attack can be tried against any rule of merging.

W parameters. `known` [H, W] is what the liar knows of others: in a simulation what each honest member contributes to
this merge, in a daemon its own parameters and the result of the last merge.
"""

from collections.abc import Callable

import numpy as np

from p2p_tally.attacks.kinds import Attack

# (own [W], known [H, W], attack, what is drawn from) -> what is contributed [W].
VectorLie = Callable[[np.ndarray, np.ndarray, Attack, np.random.Generator], np.ndarray]


def sign(own: np.ndarray, _known: np.ndarray, _attack: Attack, _draw: np.random.Generator) -> np.ndarray:
    return -own


def scale(own: np.ndarray, _known: np.ndarray, attack: Attack, _draw: np.random.Generator) -> np.ndarray:
    with np.errstate(over="ignore"):
        scaled: np.ndarray = own * np.float32(attack.factor)
    return scaled


def alie(_own: np.ndarray, known: np.ndarray, attack: Attack, _draw: np.random.Generator) -> np.ndarray:
    """ "A Little Is Enough", Baruch and others, NeurIPS 2019: within the spread of the honest, and all liars alike."""
    shifted: np.ndarray = known.mean(0) - np.float32(attack.factor) * known.std(0)
    return shifted


def ipm(_own: np.ndarray, known: np.ndarray, attack: Attack, _draw: np.random.Generator) -> np.ndarray:
    """Inner product manipulation, Xie and others, UAI 2020: against the honest mean, and no larger than it."""
    against: np.ndarray = np.float32(-attack.factor) * known.mean(0)
    return against


def mimic(_own: np.ndarray, known: np.ndarray, _attack: Attack, _draw: np.random.Generator) -> np.ndarray:
    """Karimireddy and others, ICLR 2022: no value is false, but one member counts several times."""
    first: np.ndarray = known[0].copy()
    return first


def selfish(_own: np.ndarray, known: np.ndarray, attack: Attack, _draw: np.random.Generator) -> np.ndarray:
    """Competitive advantage, Jia, Fang and Gong, NeurIPS 2025 (SelfishAttack, its attack on the mean with lambda 0):
    the plain mean of the known and of all liars, who say the same, is then what the first of the known has alone.

    In the paper each receiver is sent another lie; here there is one for all, as a mesh sums it once for all."""
    everyone = len(known) + attack.count
    said = everyone * known[0].astype(np.float64) - known.sum(0, dtype=np.float64)
    false: np.ndarray = (said / attack.count).astype(np.float32)
    return false


def honest_mean(own: np.ndarray, known: np.ndarray) -> np.ndarray:
    """What a selfish member takes of a merge that it has spoilt for the others."""
    mean: np.ndarray = np.concatenate([known, own[None]]).mean(0, dtype=np.float64).astype(np.float32)
    return mean


def noise(own: np.ndarray, _known: np.ndarray, attack: Attack, draw: np.random.Generator) -> np.ndarray:
    size = attack.factor * float(np.sqrt(np.mean(np.square(own, dtype=np.float64))))
    noisy: np.ndarray = own + np.float32(size) * draw.standard_normal(len(own), dtype=np.float32)
    return noisy


def nan(own: np.ndarray, _known: np.ndarray, _attack: Attack, _draw: np.random.Generator) -> np.ndarray:
    return np.full_like(own, np.nan)


LIES: dict[str, VectorLie] = {
    "sign": sign,
    "scale": scale,
    "alie": alie,
    "ipm": ipm,
    "mimic": mimic,
    "selfish": selfish,
    "noise": noise,
    "nan": nan,
}

# Kinds whose liars take another result of a merge than the others: (own [W], known [H, W]) -> it [W].
TAKEN: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {"selfish": honest_mean}
