"""The exception tree is the one that its module draws, and a peer's fault carries a word for the counters."""

import inspect

import pytest

from p2p_tally import errors
from p2p_tally.errors import ConfigError, DataError, FrameError, OperatorError, PeerError, TallyError

CLASSES = {name: found for name, found in vars(errors).items() if inspect.isclass(found)}


def drawn() -> dict[str, str | None]:
    """Class -> its base, read from the drawing in the docstring."""
    assert errors.__doc__ is not None
    bases: dict[str, str | None] = {}
    path: list[tuple[int, str]] = []
    for line in errors.__doc__.splitlines():
        bare = line.lstrip(" │├└─")
        name = bare.split(" ")[0]
        if not name.endswith("Error"):
            continue
        depth = len(line) - len(bare)
        path = [(at, above) for at, above in path if at < depth]
        bases[name] = path[-1][1] if path else None
        path.append((depth, name))
    return bases


def test_the_drawing_is_the_tree() -> None:
    actual = {name: found.__base__.__name__ for name, found in CLASSES.items()}
    assert actual.pop("TallyError") == "Exception"
    assert drawn() == {"TallyError": None, **actual}


def test_whose_fault() -> None:
    assert issubclass(ConfigError, OperatorError) and issubclass(DataError, OperatorError)
    assert not issubclass(PeerError, OperatorError) and not issubclass(OperatorError, PeerError)
    assert all(issubclass(found, TallyError) for found in CLASSES.values())


def test_a_peers_fault_has_a_reason() -> None:
    assert FrameError("cut short").reason == "frame"
    assert FrameError("cut short", reason="length").reason == "length"
    assert FrameError("again").reason == "frame"  # one instance's reason is not the class's
    assert str(FrameError("cut short", reason="length")) == "cut short"


@pytest.mark.parametrize("name", [name for name, found in CLASSES.items() if issubclass(found, PeerError)])
def test_reasons_are_told_apart(name: str) -> None:
    reasons = [found.reason for found in CLASSES.values() if issubclass(found, PeerError)]
    assert reasons.count(CLASSES[name].reason) == 1
