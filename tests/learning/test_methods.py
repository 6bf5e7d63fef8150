"""The table of methods: its rows say what the paper says of each, and the command line knows every row."""

from typing import get_args

import pytest

from p2p_tally.config import Federation, MethodName
from p2p_tally.learning.methods import METHODS, MergeRule, Sent


def test_the_configuration_names_exactly_the_rows_of_the_table() -> None:
    assert get_args(MethodName) == tuple(METHODS)
    accepted = Federation.about("method")["accepted"]
    assert accepted == "one of " + ", ".join(METHODS)


# name: what is sent, merge rule, merges every, waits for the warm-up, fixed alpha
EXPECTED = {
    "tally": (Sent.VOTES, MergeRule.REPLACE, 50, True, None),
    "local": (Sent.NOTHING, MergeRule.NONE, 0, False, None),
    "no-consensus": (Sent.NOTHING, MergeRule.REPLACE, 0, True, 1.0),
    "fedavg": (Sent.NOTHING, MergeRule.REPLACE, 50, False, None),
    "fedprox": (Sent.NOTHING, MergeRule.REPLACE, 50, False, None),
    "fedmd": (Sent.SOFT, MergeRule.REPLACE, 50, True, None),
    "rcfd": (Sent.TOP_K, MergeRule.REPLACE, 50, True, None),
    "feddf": (Sent.SOFT, MergeRule.REPLACE, 1, False, 0.0),
    "diloco": (Sent.NOTHING, MergeRule.OUTER_STEP, 50, False, None),
}


@pytest.mark.parametrize("name", METHODS)
def test_row(name: str) -> None:
    row = METHODS[name]
    assert (row.sent, row.merge, row.merge_every, row.waits, row.alpha) == EXPECTED[name]
    assert row.summary


def test_what_only_one_method_does() -> None:
    assert [name for name, row in METHODS.items() if row.proximal] == ["fedprox"]
    assert [name for name, row in METHODS.items() if row.distils_merged] == ["feddf"]
    assert [name for name, row in METHODS.items() if row.common_start] == ["diloco"]


def test_who_learns_from_probes() -> None:
    learning = {name for name, row in METHODS.items() if row.learns_from_probes}
    assert learning == {"tally", "no-consensus", "fedmd", "rcfd", "feddf"}
    # Whoever sends answers learns from them; learning from labels alone needs no channel.
    assert {name for name, row in METHODS.items() if row.sent is not Sent.NOTHING} == learning - {"no-consensus"}
