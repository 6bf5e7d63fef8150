"""Who takes part, and what becomes of a result: as tables."""

import pytest

from p2p_tally.defence.verdicts import REFUSED, Outcome, Verdict, from_bits, outcome, taking_part, to_bits

D, E = b"d" * 16, b"e" * 16
YES, OTHER, NO = Verdict(D), Verdict(E), Verdict(REFUSED)


def accusing(*members: int) -> Verdict:
    return Verdict(REFUSED, frozenset(members))


@pytest.mark.parametrize(
    ("verdicts", "adopted", "out"),
    [
        ([YES] * 5, D, []),
        ([YES] * 3 + [None] * 2, D, []),  # who says nothing has no veto
        ([YES] * 2 + [None] * 3, None, [2, 3, 4]),
        ([YES] * 4 + [NO], None, [4]),  # who refuses must say whom it accuses
        ([YES] * 4 + [OTHER], None, [4]),
        ([YES] * 4 + [accusing(0)], None, [0, 4]),
        ([YES] * 4 + [accusing(0, 1, 2, 3)], None, [4]),
        ([accusing(4)] * 4 + [YES], None, [4]),
        ([YES, YES, OTHER, OTHER, None], None, [4]),  # no majority
        ([NO] * 5, None, []),
    ],
)
def test_what_becomes_of_a_result(verdicts: list[Verdict | None], adopted: bytes | None, out: list[int]) -> None:
    rest = [] if adopted else [member for member in range(5) if member not in out]
    assert outcome(verdicts) == Outcome(adopted, rest, out)


def test_a_verdict_as_bytes() -> None:
    said = Verdict(D, frozenset({1, 9}))
    assert Verdict.decode(said.encode(10), 10) == said
    assert Verdict.decode(b"", 10) is Verdict.decode(said.encode(10) + b"x", 10) is None


def rolls(*heard: str) -> list[bytes]:
    return [to_bits({int(digit) for digit in one}, len(heard)) if one else b"" for one in heard]


@pytest.mark.parametrize(
    ("heard", "who"),
    [
        (["01234"] * 5, [0, 1, 2, 3, 4]),
        (["0123"] * 4 + [""], [0, 1, 2, 3]),
        (["0123"] * 4 + ["01234"], [0, 1, 2, 3]),  # only it says that it is there
        (["01234"] * 4 + ["4"], [0, 1, 2, 3]),  # an empty roll vetoes nobody else
        (["01234"] * 3 + ["0123", "0124"], [0, 1, 2]),  # two that do not hear each other
        (["01234"] * 4 + ["0124"], [0, 1, 2]),  # one says so: nobody knows which of the two is to blame
        (["01234", "01234", "0123", "0123", "0123"], [0, 1, 2, 3]),  # it announced itself to two of five
    ],
)
def test_who_takes_part(heard: list[str], who: list[int]) -> None:
    assert taking_part(rolls(*heard)) == who


def test_bits() -> None:
    assert from_bits(to_bits({0, 8}, 9), 9) == {0, 8}
    assert from_bits(b"\xff\xff", 9) == set(range(9))
