"""Lies about probes, as functions of logits [..., P, C]: votes, soft labels and top-k answers all follow from these.

No torch is imported here: a tensor brings its own methods.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from p2p_tally.attacks.kinds import Attack

if TYPE_CHECKING:
    from torch import Tensor

# How far apart the logits are that a random answer is made of: its probabilities are near 0 and 1.
RANDOM_SCALE = 10.0

# (logits, attack, what is drawn from) -> the logits that are answered by.
AnswerLie = Callable[["Tensor", Attack, np.random.Generator], "Tensor"]


def flip(logits: "Tensor", _attack: Attack, _draw: np.random.Generator) -> "Tensor":
    """Class c is called c + 1, and the last one 0: no class keeps its name, and all liars agree."""
    return logits.roll(1, -1)


def targeted(logits: "Tensor", attack: Attack, _draw: np.random.Generator) -> "Tensor":
    """Where A is likeliest, A and B change places."""
    a, b = attack.classes
    said = logits.clone()
    where = logits.argmax(-1) == a
    said[..., a][where] = logits[..., b][where]
    said[..., b][where] = logits[..., a][where]
    return said


def second_choice(logits: "Tensor", _attack: Attack, _draw: np.random.Generator) -> "Tensor":
    """The two likeliest classes change places: wrong where the model is right, and hard to tell from an honest slip."""
    top = logits.topk(2, -1)
    return logits.scatter(-1, top.indices.flip(-1), top.values)


def random(logits: "Tensor", _attack: Attack, draw: np.random.Generator) -> "Tensor":
    """Every class as likely, drawn anew for each probe and liar."""
    return logits.new_tensor(RANDOM_SCALE * draw.standard_normal(tuple(logits.shape)))


LIES: dict[str, AnswerLie] = {
    "flip": flip,
    "targeted": targeted,
    "second-choice": second_choice,
    "random": random,
}
