"""What --attack accepts, and who lies by it."""

import pytest
from conftest import small

from p2p_tally.attacks.kinds import KINDS, About, attacks, check_attacks, liars, lies_of
from p2p_tally.errors import ConfigError


def test_the_last_members_lie() -> None:
    federation = small(nodes=5, attack="flip:2,scale:10:1")
    assert liars(federation) == 2
    named = [[attack.kind.name for about in About for attack in lies_of(federation, rank, about)] for rank in range(5)]
    assert named == [[], [], [], ["flip"], ["flip", "scale"]]


def test_nobody_lies_by_a_count_of_none() -> None:
    assert liars(small(attack="flip:0")) == 0
    assert liars(small()) == 0


def test_several_stand_in_a_file_as_a_list() -> None:
    federation = type(small()).parse({"nodes": 4, "attack": ["flip:1", "targeted:3-8:2"]})
    assert [attack.argument for attack in attacks(federation)] == ["", "3-8"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.default])
def test_an_argument_that_has_a_default_may_be_left_out(kind) -> None:
    (attack,) = attacks(small(nodes=4, attack=f"{kind.name}:1"))
    assert attack.factor == float(kind.default)


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        ("lie:1", "no such kind; accepted are flip, targeted"),
        ("flip:4", "a count below the 4 nodes"),
        ("flip:3:1", "accepted is flip:COUNT"),
        ("targeted:1", "accepted is targeted:A-B:COUNT"),
        ("targeted:3-3:1", "with two different classes"),
        ("scale:much:1", "with a number"),
        ("withhold:tea:1", "one of vote, announce"),
        ("targeted:3-10:1", "classes from 0 to 9"),
        ("copy:1", "a daemon votes before it hears others"),
        ("sign:1", "nothing is merged"),
    ],
)
def test_bad_ones_are_refused_in_one_line(attack: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check_attacks(small(nodes=4, merge_every=0, attack=attack), "daemon", 10)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("--attack ")


def test_what_a_method_or_an_engine_cannot_do_is_refused() -> None:
    with pytest.raises(ConfigError, match="fedavg sends no answers; accepted are sign"):
        check_attacks(small(method="fedavg", attack="flip:1"), "exact")
    with pytest.raises(ConfigError, match="a batched model sends no messages"):
        check_attacks(small(attack="equivocate:1"), "stacked")
    with pytest.raises(ConfigError, match="without --warmup auto"):
        check_attacks(small(attack="copy:1", warmup="auto"), "exact")


def test_the_form_is_checked_with_the_other_options() -> None:
    with pytest.raises(ConfigError, match="--attack flip: accepted is KIND:COUNT"):
        type(small()).parse({"attack": "flip"})
