"""A user's own method, tried out before a run: a function that does not fit is named in one line, before round 1."""

import numpy as np
import torch

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.consensus import Answer
from p2p_tally.learning.methods import METHODS, Sends, method_of
from p2p_tally.learning.subjects import class_means

NODES, PROBES = 2, 3  # as many as it takes to see a function that mixes them up
_USERS_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError)


def try_method(federation: Federation, classes: int) -> None:
    """Call a row's answer and target once, and check what they give. The rows of the table are known to fit."""
    method = method_of(federation)
    if method.name in METHODS or method.answer is None or method.target is None or method.sends.features:
        return  # how many features a model has is not known here
    where = f"--method {federation.method}"
    logits = torch.linspace(-1, 1, NODES * PROBES * classes).view(NODES, PROBES, classes)
    try:
        answers = method.answer(logits, federation)
    except _USERS_ERRORS as error:
        raise ConfigError(f"{where}: its answer fails: {_one_line(error)}") from error
    _check_answers(answers, method.sends, classes, federation.top_k, where)
    rows = PROBES
    if method.sends.by_class and isinstance(answers, np.ndarray):
        rows, answers = classes, class_means(answers, np.zeros((NODES, PROBES), np.int64), classes)
    each: list[Answer] = list(zip(*answers, strict=True)) if isinstance(answers, tuple) else list(answers)
    for weights in (None, np.full(NODES, 1 / NODES)):
        try:
            target = method.target(each, classes, federation, weights)
        except _USERS_ERRORS as error:
            raise ConfigError(f"{where}: its target fails: {_one_line(error)}") from error
        if not isinstance(target, np.ndarray) or target.shape != (rows, classes):
            asked = f"{classes} classes" if method.sends.by_class else f"{PROBES} probes of {classes} classes"
            raise ConfigError(
                f"{where}: its target gives {_kind(target)} for {asked}; accepted is an array ({rows}, {classes})"
            )


def _check_answers(answers: Answer, sends: Sends, classes: int, k: int, where: str) -> None:
    soft, top = (NODES, PROBES, classes), (NODES, PROBES, k)
    known: dict[Sends, list[tuple[int, ...]]] = {
        Sends.VOTES: [(NODES, PROBES)],
        Sends.SOFT: [soft],
        Sends.SOFT_BY_CLASS: [soft],
    }
    shapes = known.get(sends, [top, top])
    parts: list[np.ndarray] = list(answers) if isinstance(answers, tuple) else [answers]
    if [getattr(part, "shape", None) for part in parts] != shapes:
        wanted = " and ".join(f"an array {shape}" for shape in shapes)
        raise ConfigError(
            f"{where}: its answer gives {' and '.join(map(_kind, parts))} for logits {tuple(soft)}; accepted of a "
            f"method that sends {sends} is {wanted}"
        )
    if sends in (Sends.VOTES, Sends.TOP_K) and not (parts[0].min() >= 0 and parts[0].max() < classes):
        raise ConfigError(f"{where}: its answer names a class that is none; accepted is 0 to {classes - 1}")
    if sends is not Sends.VOTES and not np.allclose(parts[-1].sum(-1), 1, atol=1e-3):
        raise ConfigError(f"{where}: its answer's probabilities of a probe do not sum to 1")


def _kind(value: object) -> str:
    return f"an array {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
