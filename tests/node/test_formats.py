"""In which form ballots and merges are written, and ballots that are refused before the first round."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from conftest import make_daemons, small

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.node.formats import (
    ballot_form,
    ballot_format,
    check_sendable,
    format_since,
    merge_format,
    merge_formats,
)
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


def many_classes(folder: Path) -> str:
    x, y = np.zeros((80, 4), np.float32), np.full(80, 69_999)
    np.savez(folder / "many.npz", x_train=x, y_train=y, x_test=x[:5], y_test=y[:5])
    return f"npz:{folder / 'many.npz'}"


def test_ballots_that_no_link_can_carry_are_refused_by_a_daemon(tmp_path: Path) -> None:
    shared = {"data": many_classes(tmp_path), "partition": "iid", "probe_count": 64, "model": "mlp:2"}
    federation = small(nodes=2, merge_every=0, method="fedmd", probes_per_round=60, **shared)
    with pytest.raises(ConfigError) as refusal:
        make_daemons(federation, tmp_path)
    assert str(refusal.value) == (
        "--probes-per-round 60: 60 answers of --method fedmd are 16800000 bytes; "
        "accepted over a link is at most 16777152"
    )


@pytest.mark.parametrize(("votes", "fits"), [(936, True), (937, False)])
def test_a_ballot_fits_a_queue_with_the_rest_of_its_frame(votes: int, fits: bool) -> None:
    federation, ballots = Federation(), BallotFormat("byte", votes, 10)
    if fits:
        check_sendable(federation, ballots, 1000)
    else:
        with pytest.raises(ConfigError, match="accepted over a link is at most 936"):
            check_sendable(federation, ballots, 1000)


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
