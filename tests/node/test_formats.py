"""In which form ballots and merges are written, and ballots that are refused before the first round."""

from itertools import islice

import numpy as np
import pytest

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.node.formats import ballot_form, ballot_format, format_since, merge_format, merge_formats
from p2p_tally.protocol.ballots import BallotFormat
from p2p_tally.protocol.changes import ChangeFormat


@pytest.mark.parametrize(("rounds", "votes"), [(65_535, 65_536), (65_536, 65_535)])
def test_long_ballots_or_many_rounds(rounds: int, votes: int) -> None:
    assert ballot_format(Federation(rounds=rounds), votes, 10).largest == votes


def test_long_ballots_and_many_rounds_are_refused() -> None:
    """Their votes would cost more than 24 bytes over the ballot."""
    with pytest.raises(ConfigError) as refusal:
        ballot_format(Federation(rounds=65_536), 65_536, 10)
    assert str(refusal.value) == (
        "--rounds 65536: accepted is at most 65535 where ballots are longer than 65535 bytes; here they are up to 65536"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"ballot": "byte"}, BallotFormat("byte", 16, 10, 5)),
        ({"ballot": "coded"}, BallotFormat("coded", 16, 10, 5)),
        ({"method": "fedmd", "soft_precision": "int8"}, BallotFormat("soft", 16, 10, 5, "int8")),
        ({"method": "rcfd", "top_k": 2}, BallotFormat("top-k", 16, 10, 2)),
    ],
    ids=str,
)
def test_the_form_of_a_ballot_follows_method_and_options(options: dict[str, object], expected: BallotFormat) -> None:
    federation = Federation.parse({"top_k": 5} | options)
    assert ballot_format(federation, 16, 10) == expected
    assert ballot_form(federation) == expected.form


def test_a_method_without_answers_has_no_form() -> None:
    assert ballot_form(Federation(method="fedavg", ballot="coded")) is None


def test_the_form_of_a_merge_follows_the_options() -> None:
    assert merge_format(Federation()).plain
    assert merge_format(Federation(merge_precision="int8", merge_top_k=0.1)) == ChangeFormat("int8", 0.1)


def test_a_change_since_zeros_is_the_model_and_sent_whole() -> None:
    sparse = ChangeFormat("int8", 0.1)
    assert format_since(np.zeros(3), sparse) == ChangeFormat("int8")
    assert format_since(np.array([0.0, 0.0, 1.0]), sparse) == sparse


@pytest.mark.parametrize(("start", "first"), [("own", ChangeFormat("int8")), ("common", ChangeFormat("int8", 0.1))])
def test_the_first_merge_is_whole_where_peers_have_no_common_start(start: str, first: ChangeFormat) -> None:
    federation = Federation.parse({"start": start, "merge_precision": "int8", "merge_top_k": 0.1})
    assert list(islice(merge_formats(federation), 3)) == [first, ChangeFormat("int8", 0.1), ChangeFormat("int8", 0.1)]
