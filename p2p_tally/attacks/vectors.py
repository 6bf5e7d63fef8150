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
    "noise": noise,
    "nan": nan,
}
