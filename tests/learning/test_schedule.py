"""What each round does, as tables: the channel and its decay, the merges that the paper counts, evaluations."""

import logging
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.methods import METHODS
from p2p_tally.learning.schedule import (
    CLOSED,
    Channel,
    channel,
    channel_opens,
    decay,
    evaluates,
    exchanges,
    in_tail,
    merge_is_due,
    merges,
    next_voting_rounds,
    quorum,
    resolve,
    sends_ballots,
    sends_changes,
    waits_for_half,
    with_agreement,
    with_quorum,
)

ABOUT_PROBES = [name for name, row in METHODS.items() if not row.sends.by_class]


def resolved(labelled: bool = True, cheap: bool = True, **options: object) -> Federation:
    return resolve(Federation.parse(options), labelled=labelled, cheap_to_evaluate=cheap)


def merge_rounds(federation: Federation) -> list[int]:
    return [r for r in range(1, federation.rounds + 1) if merges(federation, r)]


def speaking_rounds(federation: Federation) -> list[int]:
    assert isinstance(federation.warmup, int)
    return [r for r in range(1, federation.rounds + 1) if channel(federation, r, federation.warmup).speaks]


# --- the decay of the consensus


@pytest.mark.parametrize(
    ("round", "expected"),
    # W = 10, T = 4: 1 - (r - 10) / 4
    [(11, 0.75), (12, 0.5), (13, 0.25), (14, 0.0), (15, 0.0), (1000, 0.0)],
)
def test_decay_by_hand(round: int, expected: float) -> None:
    assert decay(round, 10, 4) == expected


@pytest.mark.parametrize("round", [1, 11, 10_000])
def test_without_a_window_nothing_fades(round: int) -> None:
    assert decay(round, 10, 0) == 1.0


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 5000), st.integers(1, 5000))
def test_decay_reaches_zero_exactly_at_the_end_of_its_window(warmup: int, window: int) -> None:
    assert decay(warmup + window, warmup, window) == 0.0
    assert decay(warmup + window - 1, warmup, window) > 0.0
    assert decay(warmup, warmup, window) == 1.0


# --- the channel


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # Channels of rounds 2, 3, 4, 5, 6 at W = 2, as (label, consensus).
        ({"method": "tally", "alpha": 0.5}, [(0, 0), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5)]),
        ({"method": "tally", "alpha": 0.25}, [(0, 0), (0.25, 0.75), (0.25, 0.75), (0.25, 0.75), (0.25, 0.75)]),
        # T = 4: lambda is 3/4, 1/2, 1/4, 0; the labels do not fade.
        (
            {"method": "tally", "alpha": 0.5, "kl_decay": 4},
            [(0, 0), (0.5, 0.375), (0.5, 0.25), (0.5, 0.125), (0.5, 0)],
        ),
        ({"method": "tally", "alpha": 0, "kl_decay": 4}, [(0, 0), (0, 0.75), (0, 0.5), (0, 0.25), (0, 0)]),
        ({"method": "tally", "alpha": 1}, [(0, 0), (1, 0), (1, 0), (1, 0), (1, 0)]),
        ({"method": "no-consensus"}, [(0, 0), (1, 0), (1, 0), (1, 0), (1, 0)]),
        ({"method": "fedmd", "alpha": 0.5}, [(0, 0), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5)]),
        ({"method": "rcfd", "alpha": 0.5}, [(0, 0), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5)]),
        # FedDF knows no warm-up and no labels.
        ({"method": "feddf"}, [(0, 1), (0, 1), (0, 1), (0, 1), (0, 1)]),
        ({"method": "fedavg"}, [(0, 0)] * 5),
        ({"method": "fedprox"}, [(0, 0)] * 5),
        ({"method": "diloco"}, [(0, 0)] * 5),
        ({"method": "local"}, [(0, 0)] * 5),
    ],
)
def test_channel_table(options: dict[str, object], expected: list[tuple[float, float]]) -> None:
    federation = resolved(warmup=2, **options)
    found = [channel(federation, r, 2) for r in range(2, 7)]
    assert found == [Channel(label, consensus) for label, consensus in expected]


@pytest.mark.parametrize("method", ABOUT_PROBES)
def test_an_automatic_warm_up_that_lasts_keeps_the_channel_closed(method: str) -> None:
    federation = resolved(method=method, warmup="auto")
    assert federation.warmup == "auto"
    # FedDF does not wait for anything.
    expected = Channel(0.0, 1.0) if method == "feddf" else CLOSED
    assert channel(federation, 7, None) == expected


def test_an_automatic_warm_up_opens_after_the_round_it_ended_in() -> None:
    federation = resolved(method="tally", warmup="auto", alpha=0.5, kl_decay=4)
    assert channel(federation, 17, 17) == CLOSED
    assert channel(federation, 18, 17) == Channel(0.5, 0.375)  # the decay counts from there: 3/4 of 1/2


def test_trains_and_speaks() -> None:
    assert (CLOSED.trains, CLOSED.speaks) == (False, False)
    assert (Channel(1.0, 0.0).trains, Channel(1.0, 0.0).speaks) == (True, False)
    assert (Channel(0.0, 0.1).trains, Channel(0.0, 0.1).speaks) == (True, True)


def test_the_paper_channel_is_open_for_2700_of_3000_rounds() -> None:
    assert speaking_rounds(resolved(rounds=3000, warmup=300)) == list(range(301, 3001))


def test_alpha_one_speaks_never() -> None:
    assert speaking_rounds(resolved(rounds=400, warmup=10, alpha=1)) == []


@pytest.mark.parametrize("window", [1, 2, 3, 7, 200])
def test_a_decaying_channel_speaks_one_round_less_than_its_window(window: int) -> None:
    # lambda is (T - 1)/T in round W + 1 and 0 in round W + T.
    federation = resolved(rounds=400, warmup=10, alpha=0, kl_decay=window)
    assert speaking_rounds(federation) == list(range(11, 10 + window))
    assert len(speaking_rounds(federation)) == window - 1
    assert not channel(federation, 10 + window, 10).trains


def test_a_warm_up_as_long_as_the_run_never_opens() -> None:
    assert speaking_rounds(resolved(rounds=20, warmup=20)) == []
    assert speaking_rounds(resolved(rounds=20, warmup=19)) == [20]
    assert speaking_rounds(resolved(rounds=3, warmup=0)) == [1, 2, 3]


def test_only_a_merged_model_is_distilled() -> None:
    federation = resolved(method="feddf", rounds=8, merge_every=4)
    assert [channel(federation, round, 0) for round in (3, 4, 5)] == [CLOSED, Channel(0.0, 1.0), CLOSED]


@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        ({"method": "local"}, []),
        ({"method": "fedavg", "merge_every": 4}, [4, 8]),
        ({"method": "tally", "warmup": 6, "merge_every": 0}, [7, 8, 9]),
        ({"method": "tally", "warmup": 7, "merge_every": 4}, [8, 9]),  # no merges in the warm-up
        ({"method": "tally", "warmup": "auto", "merge_every": 0}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ({"method": "fedavg", "warmup": "auto", "merge_every": 4}, [4, 8]),
    ],
)
def test_rounds_in_which_anything_may_be_sent(options: dict[str, object], rounds: list[int]) -> None:
    federation = resolved(rounds=9, **options)
    assert [round for round in range(1, 10) if exchanges(federation, round)] == rounds


# --- merges


@pytest.mark.parametrize(
    ("method", "every", "count"),
    # At R = 3000, W = 300, the rounds of the paper.
    [
        ("tally", 200, 14),
        ("fedmd", 200, 14),
        ("rcfd", 200, 14),
        ("no-consensus", 200, 14),
        ("fedavg", 200, 15),
        ("fedavg", 50, 60),
        ("fedavg", 500, 6),
        ("fedavg", 1, 3000),
        ("fedprox", 200, 15),
        ("diloco", 200, 15),
        ("feddf", 1, 3000),
        ("tally", 0, 0),
        ("local", 200, 0),
    ],
)
def test_merge_counts_of_the_paper(method: str, every: int, count: int) -> None:
    federation = resolved(method=method, merge_every=every, rounds=3000, warmup=300)
    assert len(merge_rounds(federation)) == count


def test_which_rounds_merge() -> None:
    assert merge_rounds(resolved(merge_every=4, rounds=16, warmup=4)) == [8, 12, 16]  # round 4 is still warm-up
    assert merge_rounds(resolved(merge_every=4, rounds=16, warmup=3)) == [4, 8, 12, 16]
    assert merge_rounds(resolved(method="fedavg", merge_every=4, rounds=15, warmup=9)) == [4, 8, 12]
    # Nodes may see an automatic warm-up end in different rounds; their merges keep to the clock.
    assert merge_rounds(resolved(merge_every=4, rounds=16, warmup="auto")) == [4, 8, 12, 16]


def test_merges_unless_told_otherwise() -> None:
    found = {method: resolved(method=method).merge_every for method in METHODS}
    seldom = ("local", "no-consensus", "fedct", "dsfl", "idkd", "cronus", "fd", "fedproto")
    expected = dict.fromkeys(seldom, 0) | {"feddf": 1}
    expected |= dict.fromkeys(("gflat", "dspodfl", "pame", "spod-gt", "dpfl", "dfml", "fedkd", "fedspd"), 1)
    assert found == {method: expected.get(method, 50) for method in METHODS}


# --- evaluations and the tail


def test_evaluated_rounds_and_the_tail() -> None:
    federation = resolved(rounds=20, eval_every=3, tail=10, merge_every=0)
    evaluated = [r for r in range(1, 21) if evaluates(federation, r)]
    assert evaluated == [3, 6, 9, 12, 15, 18, 20]  # and always the last
    assert [r for r in evaluated if in_tail(federation, r)] == [12, 15, 18]  # 20 is off the cadence


def test_a_tail_shorter_than_the_cadence_is_the_last_round() -> None:
    federation = resolved(rounds=20, eval_every=7, tail=6, merge_every=0)
    assert [r for r in range(1, 21) if in_tail(federation, r)] == [20]


def test_every_round_is_evaluated_where_that_is_cheap() -> None:
    federation = resolved(rounds=300)
    assert federation.eval_every == 1
    assert federation.tail == 10  # R / 30
    assert [r for r in range(1, 301) if in_tail(federation, r)] == list(range(291, 301))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4000), st.integers(0, 300), st.booleans(), st.data())
def test_a_tail_is_never_empty_and_always_evaluated(rounds: int, every: int, cheap: bool, data: st.DataObject) -> None:
    tail = data.draw(st.none() | st.integers(1, rounds))
    federation = resolved(cheap=cheap, rounds=rounds, merge_every=every, tail=tail)
    assert federation.tail is not None
    inside = [r for r in range(max(1, rounds - federation.tail), rounds + 1) if in_tail(federation, r)]
    assert inside
    assert all(evaluates(federation, r) for r in inside)


@pytest.mark.parametrize(
    ("rounds", "tail", "every", "expected"),
    [
        # min(R / 300, tail / 20), then up to the next number coprime to M.
        (3000, 100, 0, 5),
        (3000, 100, 200, 7),  # 5 and 6 share factors with 200
        (3000, 600, 200, 11),  # 10 does
        (3000, 600, 1, 10),
        (300, 10, 50, 1),
    ],
)
def test_cadence_where_evaluations_are_dear(rounds: int, tail: int, every: int, expected: int) -> None:
    federation = resolved(cheap=False, rounds=rounds, tail=tail, merge_every=every)
    assert federation.eval_every == expected
    assert math.gcd(expected, every or 1) == 1


# --- resolving


def test_resolve_fills_every_open_default() -> None:
    federation = resolved(rounds=300)
    assert (federation.warmup, federation.alpha, federation.merge_every) == (30, 0.5, 50)
    assert (federation.tail, federation.eval_every) == (10, 1)


def test_resolve_keeps_what_was_said() -> None:
    said = {"warmup": 0, "alpha": 0.25, "merge_every": 7, "tail": 3, "eval_every": 2, "rounds": 90}
    federation = resolved(**said)
    assert {name: getattr(federation, name) for name in said} == said


@pytest.mark.parametrize("method", METHODS)
def test_resolving_twice_changes_nothing(method: str, caplog: pytest.LogCaptureFixture) -> None:
    once = resolved(method=method, rounds=3000, cheap=False)
    assert resolve(once, labelled=True) == once
    assert caplog.messages == []


def test_alpha_follows_labels_and_method() -> None:
    assert resolved(labelled=True).alpha == 0.5
    assert resolved(labelled=False).alpha == 0.0
    assert resolved(method="no-consensus").alpha == 1.0
    assert resolved(method="feddf").alpha == 0.0
    assert resolved(labelled=False, method="feddf").alpha == 0.0


@pytest.mark.parametrize("options", [{"alpha": 0.3}, {"method": "no-consensus"}, {"method": "fedmd", "alpha": 1}])
def test_labels_must_be_there_where_they_count(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"^--alpha \S+: the probes carry no labels; accepted .* 0 [^\n]*$"):
        resolved(labelled=False, **options)


def test_a_method_that_asks_no_probes_needs_no_labels() -> None:
    assert resolved(labelled=False, method="fedavg", alpha=0.5).alpha == 0.5


def test_an_automatic_warm_up_needs_labels() -> None:
    with pytest.raises(ConfigError, match=r"^--warmup auto: [^\n]*$"):
        resolved(labelled=False, warmup="auto")


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"method": "local", "merge_every": 5}, "--merge-every 5: the method local never merges"),
        ({"method": "no-consensus", "alpha": 0.5}, "--alpha 0.5: the method no-consensus has its own, 1.0"),
        ({"eval_every": 10, "merge_every": 50}, "--eval-every 10 shares a factor with --merge-every 50"),
        ({"eval_every": 6, "merge_every": 4}, "--eval-every 6 shares a factor with --merge-every 4"),
    ],
)
def test_what_is_ignored_or_aliases_is_said(
    options: dict[str, object], warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        resolved(**options)
    assert [message[: len(warning)] for message in caplog.messages] == [warning]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"eval_every": 7, "merge_every": 50},
        {"eval_every": 5, "merge_every": 1},
        {"eval_every": 5, "merge_every": 0},
        {"eval_every": 5, "method": "local"},
        {"method": "no-consensus", "alpha": 1},
    ],
)
def test_no_warning_without_cause(options: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        resolved(**options)
    assert caplog.messages == []


# --- who sends what


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_who_sends_ballots_is_who_has_an_open_channel_for_them(method: str, alpha: float) -> None:
    federation = resolved(method=method, alpha=alpha, merge_every=1, warmup=3, rounds=9)
    assert sends_ballots(federation) is bool(speaking_rounds(federation))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"merge_precision": "bfloat16"}, True),
        ({"merge_top_k": 0.1}, True),
        ({"merge_precision": "int8", "merge_every": 0}, False),
    ],
    ids=str,
)
def test_changes_are_sent_where_something_is_rounded_or_left_out(options: dict[str, object], expected: bool) -> None:
    assert sends_changes(resolved(**options)) is expected


def test_the_next_rounds_with_ballots() -> None:
    federation = resolved(rounds=20, warmup=5, kl_decay=6)
    assert speaking_rounds(federation) == [6, 7, 8, 9, 10]
    assert next_voting_rounds(federation, 1) == [6, 7, 8]
    assert next_voting_rounds(federation, 9) == [9, 10]
    assert next_voting_rounds(federation, 15) == [15]
    assert next_voting_rounds(resolved(warmup="auto"), 4, count=2) == [4, 5]


# --- the quorum


@pytest.mark.parametrize(
    ("neighbourhood", "needed"), [(2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4), (8, 5), (100, 51), (101, 51)]
)
def test_the_default_quorum_is_a_majority(neighbourhood: int, needed: int) -> None:
    assert quorum(neighbourhood) == needed
    assert 2 * needed > neighbourhood >= 2 * (needed - 1)


def test_a_node_that_hears_nobody_has_no_consensus() -> None:
    assert quorum(1) == 2


def test_the_operators_own_quorum_wins() -> None:
    assert quorum(8, 1) == 1
    assert quorum(8, 8) == 8


def test_below_the_quorum_labels_alone_are_learned_from() -> None:
    now = Channel(0.25, 0.75)
    assert with_quorum(now, 5, 8) is now
    assert with_quorum(now, 4, 8) == Channel(0.25, 0.0)
    assert with_quorum(now, 4, 8, 4) is now
    assert with_quorum(now, 5, 8, 6) == Channel(0.25, 0.0)
    assert with_quorum(CLOSED, 1, 8) is CLOSED


# --- an automatic warm-up


@pytest.mark.parametrize(
    ("right", "of", "open_neighbours", "expected"),
    [
        (Fraction(1, 2), 1, 0, False),  # more than half, not half
        (Fraction(9, 16), 1, 0, True),
        (Fraction(1, 3) + Fraction(2, 3), 2, 0, False),
        (Fraction(1, 3) + Fraction(2, 3) + Fraction(1, 2), 2, 0, True),
        (Fraction(0), 3, 1, True),  # one that is open already
    ],
    ids=str,
)
def test_when_a_channel_opens(right: Fraction, of: int, open_neighbours: int, expected: bool) -> None:
    assert channel_opens(right, of, open_neighbours) is expected


def test_channels_of_all_peers_open_by_the_same_rule() -> None:
    found = channel_opens(np.array([8.0, 9.0, 0.0]), np.array([16.0, 16.0, 16.0]), np.array([0.0, 0.0, 1.0]))
    assert found.tolist() == [False, True, True]


@pytest.mark.parametrize("method", ABOUT_PROBES)
def test_who_waits_for_an_automatic_warm_up(method: str) -> None:
    federation = resolved(method=method, warmup="auto")
    assert waits_for_half(federation, None) is METHODS[method].waits
    assert not waits_for_half(federation, 7)


# --- merging by drift


@pytest.mark.parametrize(
    ("every", "threshold", "round", "last", "agreement", "expected"),
    [
        (10, 0.9, 31, 0, 0.89, True),
        (10, 0.9, 31, 0, 0.9, False),  # below, not at
        (10, 0.9, 40, 31, 0.2, False),  # too soon
        (10, 0.9, 41, 31, 0.2, True),
        (10, 0.9, 200, 31, 0.95, False),
        (10, 1.0, 200, 31, 1.0, False),  # nobody disagrees
        (10, 0.0, 200, 31, 0.0, False),
        (0, 0.9, 200, 0, 0.1, False),  # never
    ],
)
def test_when_peers_have_drifted_apart(
    every: int, threshold: float, round: int, last: int, agreement: float, expected: bool
) -> None:
    federation = resolved(merge_when="drift", merge_every=every, merge_threshold=threshold)
    assert merge_is_due(federation, round, last, agreement) is expected


def test_fewer_than_two_votes_tell_no_drift() -> None:
    federation = resolved(merge_when="drift", merge_every=1, merge_threshold=0.9)
    assert merge_is_due(federation, 40, 0, 0.1)
    assert not merge_is_due(federation, 40, 0, None)


@pytest.mark.parametrize("agreement", [None, 0.0, 1.0])
def test_by_the_clock_votes_do_not_count(agreement: float | None) -> None:
    federation = resolved(rounds=100, warmup=10, merge_every=20)
    due = [r for r in range(1, 101) if merge_is_due(federation, r, 0, agreement)]
    assert due == merge_rounds(federation) == [20, 40, 60, 80, 100]


@pytest.mark.parametrize(
    "options", [{"method": method} for method in ("fedavg", "fedprox", "diloco", "local", "feddf")] + [{"alpha": 1}]
)
def test_drift_needs_votes(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"--merge-when drift: .* accepted are tally, fedmd and rcfd"):
        resolved(merge_when="drift", **options)


# --- probabilities in fewer bits


@pytest.mark.parametrize("precision", ["float16", "int8"])
@pytest.mark.parametrize("method", ["tally", "local", "no-consensus", "fedavg", "fedprox", "diloco"])
def test_precision_needs_probabilities(method: str, precision: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(method=method, soft_precision=precision)
    assert str(caught.value) == (
        f"--soft-precision {precision}: the method {method} sends no probabilities; "
        "accepted are fedmd, feddf, and rcfd with --top-k above 1"
    )
    assert resolved(method=method, soft_precision="float32").soft_precision == "float32"


def test_a_single_class_has_no_probability_to_round() -> None:
    with pytest.raises(ConfigError, match="the method rcfd with --top-k 1 sends no probabilities"):
        resolved(method="rcfd", top_k=1, soft_precision="int8")
    for method in ("fedmd", "feddf", "rcfd"):
        assert resolved(method=method, soft_precision="int8").soft_precision == "int8"


# --- a consensus weighed by its votes


@pytest.mark.parametrize(
    ("kappa", "weight"), [(-0.3, 0.01), (0.0, 0.01), (0.05, 0.25), (0.1, 0.5), (0.2, 1.0), (0.7, 1.0)]
)
def test_votes_count_as_far_as_they_agree_beyond_chance(kappa: float, weight: float) -> None:
    now = with_agreement(Channel(0.5, 0.4), kappa)
    assert (now.label, now.consensus) == (0.5, pytest.approx(0.4 * weight))
    assert now.speaks


@pytest.mark.parametrize(("weight", "warmup"), [("fixed", 30), ("agreement", 0), ("margin", 0)])
def test_without_a_fixed_weight_there_is_no_warm_up_unless_one_is_given(weight: str, warmup: int) -> None:
    assert resolved(rounds=300, consensus_weight=weight).warmup == warmup
    assert resolved(rounds=300, consensus_weight=weight, warmup=7).warmup == 7


@pytest.mark.parametrize("method", ["fedmd", "rcfd", "fedavg", "local"])
def test_only_votes_can_be_left_out(method: str) -> None:
    with pytest.raises(ConfigError, match=r"^--abstain 0\.5: the method \w+ sends no votes; accepted is 0, or [^\n]*$"):
        resolved(method=method, abstain=0.5)


@pytest.mark.parametrize("options", [{"abstain": 0.5}, {"tally_weights": "reliability"}])
def test_dissent_is_weighed_among_whole_ballots_only(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"^--inverse-agreement 0\.5: accepted is 0 with"):
        resolved(inverse_agreement=0.5, **options)
