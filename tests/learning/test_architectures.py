"""Which node holds which model, how an item of --model is read, and what different models may not do."""

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.architectures import check_models, holders, of_rank
from p2p_tally.learning.methods import METHODS
from p2p_tally.learning.models import build


def federation(**options: Any) -> Federation:
    return Federation.parse(options)


@pytest.mark.parametrize(
    ("item", "options", "expected"),
    [
        ("mlp", {}, (0, 0)),
        ("mlp", {"width": 7, "depth": 3}, (7, 3)),
        ("mlp:64", {}, (64, 0)),
        ("mlp:64", {"width": 7, "depth": 3}, (64, 3)),
        ("mlp:64x2", {"width": 7, "depth": 3}, (64, 2)),
        ("auto:0x2", {"width": 7}, (7, 2)),
        ("my.nets:small", {"width": 7}, (7, 0)),
        ("my.nets:x64", {}, (0, 0)),  # a function: its name begins with no digit
    ],
)
def test_an_item_with_its_size(item: str, options: dict[str, Any], expected: tuple[int, int]) -> None:
    for models, rank in ((item, 5), (f"cnn,{item}", 5), (f"cnn:3x3,{item},mlp", 4)):
        chosen = of_rank(federation(model=models, **options), rank)
        assert (chosen.model, chosen.width, chosen.depth) == (item, *expected)


def test_a_single_name_is_the_federation_itself() -> None:
    plain = federation(model="mlp", width=5)
    assert of_rank(plain, 3) is plain


@given(st.lists(st.sampled_from(["mlp", "mlp:8", "cnn", "a.b:c"]), min_size=1, max_size=5), st.integers(1, 12))
def test_every_rank_holds_the_item_that_it_is_dealt(items: list[str], nodes: int) -> None:
    dealt = federation(model=",".join(items), nodes=nodes)
    held = holders(dealt)
    assert sorted(rank for ranks in held.values() for rank in ranks) == list(range(nodes))
    for item, ranks in held.items():
        assert ranks == sorted(ranks)
        assert all(items[rank % len(items)] == item == of_rank(dealt, rank).model for rank in ranks)


@pytest.mark.parametrize("model", ["", ",", "mlp,", ",mlp", "mlp,,cnn", "mlp, cnn"])
def test_a_list_with_a_gap_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match=r"^--model .*: accepted is a model that .* separated by commas"):
        federation(model=model)


@pytest.mark.parametrize("item", ["mlp:", "mlp:6y", "mlp:-3", "mlp:4x", "mlp:4x2x2", "a.b:c:4", "mlp:9999999999"])
def test_a_size_that_is_none_is_refused_in_one_line(item: str) -> None:
    with pytest.raises(ConfigError, match=rf"^--model {item}: accepted after the colon is WIDTH, WIDTHxDEPTH or"):
        of_rank(federation(model=f"mlp,{item}"), 1)


@pytest.mark.parametrize(
    ("item", "shape", "message"),
    [
        ("resnet18:64", (3, 32, 32), "--model resnet18:64: resnet18 has one size; accepted is resnet18"),
        ("linear:64", (64,), "--model linear:64: linear has one size; accepted is linear"),
        ("cnn:4x9", (64,), "--model cnn:4x9: images of 8 x 8 can be halved 3 times"),
        ("tinygpt:20", (16,), "--model tinygpt:20: tinygpt has 8 heads; accepted is a multiple of 8"),
        ("resnet99:3", (64,), "--model resnet99: accepted is auto, .*"),
    ],
)
def test_a_size_that_does_not_fit_is_blamed_on_its_item(item: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        build(of_rank(federation(model=f"mlp,{item}"), 1), "mlp", shape, 10, 0)


@pytest.mark.parametrize("method", list(METHODS))
def test_what_averages_parameters_wants_one_model(method: str) -> None:
    mixed = {"model": "mlp,mlp:8", "method": method}
    check_models(federation(**mixed, merge_every=0))
    check_models(federation(**mixed, nodes=1, merge_every=5))  # the one node holds one
    check_models(federation(model="mlp:8,mlp:8", method=method, merge_every=5))
    if method == "local":  # which ignores a cadence, with a warning
        check_models(federation(**mixed, merge_every=5))
        return
    with pytest.raises(ConfigError, match=rf"--model mlp,mlp:8: --method {method} with --merge-every 5 averages") as e:
        check_models(federation(**mixed, merge_every=5))
    assert "accepted are tally, fedmd, rcfd and no-consensus with --merge-every 0, and local" in str(e.value)
    assert "\n" not in str(e.value)


def test_the_methods_own_cadence_counts() -> None:
    with pytest.raises(ConfigError, match="--method feddf with --merge-every 1 averages"):
        check_models(federation(model="mlp,cnn", method="feddf"))
    check_models(federation(model="mlp,cnn", method="no-consensus"))


def test_a_model_that_nobody_holds_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_models(federation(model="mlp,cnn,mlp:8,mlp", nodes=2, merge_every=0))
    assert caplog.messages == ["--model mlp,cnn,mlp:8,mlp: more models than the 2 nodes; nobody holds mlp:8"]
