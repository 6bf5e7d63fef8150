"""--robust-merge: what each value means, and what is refused."""

import pytest

from p2p_tally.config import Federation
from p2p_tally.defence.rule import Rule, check_rule, rule_for
from p2p_tally.errors import ConfigError
from p2p_tally.learning.graph import make_topology


@pytest.mark.parametrize(
    ("option", "members", "wanted"),
    [
        ("off", 10, None),
        ("auto", 1, None),
        ("auto", 4, None),
        ("auto", 5, Rule("trim", 1)),
        ("auto", 9, Rule("trim", 1)),
        ("auto", 10, Rule("trim", 2)),
        ("auto", 64, Rule("trim", 12)),
        ("trim:3", 10, Rule("trim", 3)),
        ("nnm-trim:2", 10, Rule("nnm-trim", 2)),
        ("median", 10, Rule("median", 2)),
        ("clip", 10, Rule("clip", 2)),
    ],
)
def test_what_an_option_means(option: str, members: int, wanted: Rule | None) -> None:
    assert rule_for(option, members) == wanted


@pytest.mark.parametrize("given", ["trim", "trim:0", "trim:-1", "trim:x", "krum", "", "median:1", "nnm-trim:"])
def test_an_unknown_rule_is_refused_in_one_line(given: str) -> None:
    with pytest.raises(ConfigError, match=r"--robust-merge .*: accepted is off, auto, median") as refused:
        Federation.parse({"robust_merge": given})
    assert "\n" not in str(refused.value)


def test_more_liars_than_half_are_refused() -> None:
    check_rule("trim:4", 9)
    with pytest.raises(ConfigError, match=r"--robust-merge trim:4: accepted is .* at most 3"):
        check_rule("trim:4", 8)
    with pytest.raises(ConfigError, match="--robust-merge nnm-trim:4"):
        make_topology(Federation(nodes=8, robust_merge="nnm-trim:4"))


def test_around_a_ring_there_is_no_rule() -> None:
    make_topology(Federation(nodes=8, topology="ring", merge_over="ring"))
    with pytest.raises(ConfigError, match=r"--merge-over ring: .*--robust-merge median is not possible"):
        make_topology(Federation(nodes=8, topology="ring", merge_over="ring", robust_merge="median"))
