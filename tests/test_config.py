"""Options: TOML there and back, one line for every mistake, and which fields the peers must share."""

import json
import math
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from p2p_tally.config import (
    DaemonSettings,
    Federation,
    NodeSettings,
    ServiceSettings,
    parse_options,
    read_options,
    write_options,
)
from p2p_tally.errors import ConfigError
from p2p_tally.options import SEVERAL, Options


def every_option() -> list[tuple[type[Options], str]]:
    """All fields of all option sets, those of later ones included."""
    sets: list[type[Options]] = [Options]
    for one in sets:
        sets.extend(one.__subclasses__())
    return [(one, name) for one in sets for name in one.model_fields]


def refusal(values: dict[str, Any], one: type[Options] = Federation, source: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        one.parse(values, source=source)
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- every field


@pytest.mark.parametrize(("one", "name"), every_option(), ids=lambda value: getattr(value, "__name__", value))
def test_every_field_says_what_it_means_and_takes(one: type[Options], name: str) -> None:
    about = one.about(name)
    assert about["meaning"] and "\n" not in about["meaning"]
    assert about["accepted"]
    assert about["metavar"]
    assert about["default"] == getattr(one(), name)


@pytest.mark.parametrize(("one", "name"), every_option(), ids=lambda value: getattr(value, "__name__", value))
def test_every_field_refuses_nonsense_in_one_line(one: type[Options], name: str) -> None:
    nonsense = {"what": ["is", "this"]}
    expected = f"--{name.replace('_', '-')} {nonsense}: accepted is {one.about(name)['accepted']}"
    assert refusal({name: nonsense}, one) == expected


def test_the_defaults_are_those_of_the_interface() -> None:
    federation = Federation()
    assert (federation.data, federation.nodes, federation.topology, federation.method) == ("digits", 8, "mesh", "tally")
    assert (federation.rounds, federation.local_steps, federation.batch, federation.probes_per_round) == (
        300,
        5,
        16,
        16,
    )
    assert (federation.lr, federation.weight_decay, federation.partition) == (1e-3, 5e-4, "dirichlet:0.5")
    assert (federation.seed, federation.ballot, federation.model) == (0, "byte", "auto")
    assert NodeSettings().device == "auto"


# --- bad values


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nodes", 0),
        ("nodes", -3),
        ("nodes", 2.5),
        ("nodes", "many"),
        ("nodes", ""),
        ("degree", 0),
        ("topology", ""),
        ("method", "fedsgd"),
        ("method", "Tally"),
        ("rounds", 0),
        ("local_steps", -1),
        ("batch", 0),
        ("probes_per_round", 0),
        ("warmup", -1),
        ("warmup", "-1"),
        ("warmup", "soon"),
        ("warmup", 1.5),
        ("alpha", 2),
        ("alpha", -0.1),
        ("alpha", math.nan),
        ("alpha", "half"),
        ("kl_decay", -1),
        ("merge_every", -1),
        ("ballot", "morse"),
        ("top_k", 0),
        ("mu", -0.5),
        ("mu", math.inf),
        ("outer_lr", 0),
        ("outer_momentum", 1),
        ("outer_momentum", -0.1),
        ("disagreement_weight", -1),
        ("inverse_agreement", 1.1),
        ("data", ""),
        ("probes", ""),
        ("probe_count", 0),
        ("partition", ""),
        ("model", ""),
        ("width", -1),
        ("depth", -1),
        ("lr", 0),
        ("lr", -1e-3),
        ("lr", math.nan),
        ("weight_decay", -1),
        ("clip", -1),
        ("seed", -1),
        ("seed", 2**63),
        ("eval_every", 0),
        ("tail", 0),
    ],
)
def test_a_bad_value_is_named_with_what_is_accepted(name: str, value: object) -> None:
    accepted = Federation.about(name)["accepted"]
    assert refusal({name: value}) == f"--{name.replace('_', '-')} {value}: accepted is {accepted}"


@pytest.mark.parametrize("device", ["tpu", "cuda:", "cuda:x", "cpu:0", "", "cuda:1 "])
def test_a_bad_device(device: str) -> None:
    assert refusal({"device": device}, NodeSettings).startswith("--device ")


def test_a_value_of_many_lines_stays_one_line() -> None:
    assert refusal({"alpha": "a\nb\r\nc"}) == "--alpha a b c: accepted is a number from 0 to 1"


@pytest.mark.parametrize("name", ["tail", "eval_every"])
def test_no_window_is_longer_than_the_run(name: str) -> None:
    flag = "--" + name.replace("_", "-")
    assert refusal({"rounds": 10, name: 11}) == f"{flag} 11: accepted is at most the number of rounds, 10"
    assert getattr(Federation.parse({"rounds": 10, name: 10}), name) == 10


def test_an_unknown_key_is_named_with_those_there_are() -> None:
    message = refusal({"node": 3}, source="run.toml")
    assert message.startswith("run.toml: unknown key 'node'; known keys: ")
    assert "nodes" in message and "alpha" in message


def test_the_file_is_blamed() -> None:
    assert refusal({"alpha": 2}, source="run.toml") == "run.toml: --alpha 2: accepted is a number from 0 to 1"
    assert refusal({"tail": 400}, source="run.toml").startswith("run.toml: --tail 400: ")


def test_text_of_the_command_line_is_read_as_what_it_means() -> None:
    text = {"nodes": "4", "alpha": "0.25", "warmup": "auto", "merge_every": "0", "method": "fedmd", "seed": "7"}
    typed = {"nodes": 4, "alpha": 0.25, "warmup": "auto", "merge_every": 0, "method": "fedmd", "seed": 7}
    assert Federation.parse(text) == Federation.parse(typed)
    assert Federation.parse({"warmup": "30"}).warmup == 30


def test_options_do_not_change() -> None:
    federation = Federation()
    with pytest.raises(ValidationError):
        federation.nodes = 9


# --- what peers must share

LOCAL = {"batch", "data", "probes", "partition", "model", "width", "depth", "lr", "weight_decay", "clip"}
LOCAL |= {"probe_count", "eval_every", "tail"}
AGREED = {"nodes", "topology", "degree", "method", "rounds", "local_steps", "probes_per_round", "warmup", "alpha"}
AGREED |= {"kl_decay", "merge_every", "ballot", "top_k", "mu", "outer_lr", "outer_momentum"}
AGREED |= {"disagreement_weight", "inverse_agreement", "seed"}


def another_value(name: str) -> object:
    """A value that the field takes and that is not its default."""
    special = {"outer_momentum": 0.5, "merge_threshold": 0.5, "warmup": 7, "method": "fedmd", "robust_merge": "clip"}
    field = Federation.model_fields[name]
    if name in special:
        return special[name]
    if get_origin(field.annotation) is Literal:
        return next(value for value in get_args(field.annotation) if value != field.default)
    if field.default is None:
        return {"alpha": 0.25, "init": "model.safetensors", "join": "a@2", "leave": "a@2"}.get(name, 2)
    if isinstance(field.default, str):
        return field.default + "x"
    return field.default + 1 if isinstance(field.default, int) else field.default + 0.125


@pytest.mark.parametrize("name", Federation.model_fields)
def test_peers_compare_agreed_fields_and_no_others(name: str) -> None:
    agreed = bool(Federation.about(name)["agreed"])
    assert agreed or name not in AGREED
    assert not agreed or name not in LOCAL
    ours, theirs = Federation(), Federation.parse({name: another_value(name)})
    assert theirs != ours
    assert (theirs.agreed() != ours.agreed()) == agreed
    assert (name in theirs.agreed()) == agreed


def test_equal_federations_agree_on_equal_values() -> None:
    def written(federation: Federation) -> str:
        return json.dumps(federation.agreed())

    assert written(Federation()) == written(Federation.parse({"nodes": "8", "mu": "1e-3"}))
    assert written(Federation(alpha=1)) == written(Federation(alpha=1.0))


# --- TOML


def finite(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False, exclude_min=True)


federations = st.fixed_dictionaries(
    {"rounds": st.integers(20, 10**6)},
    optional={
        "nodes": st.integers(1, 10**4),
        "method": st.sampled_from(["tally", "no-consensus", "feddf", "diloco"]),
        "topology": st.sampled_from(["mesh", "ring", "erdos-renyi:0.3"]),
        "warmup": st.integers(0, 10**6) | st.just("auto"),
        "alpha": st.floats(0, 1),
        "merge_every": st.integers(0, 500),
        "lr": finite(0, 10),
        "weight_decay": finite(0, 1e9),
        "data": st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        "seed": st.integers(0, 2**63 - 1),
        "tail": st.integers(1, 20),
    },
)


@settings(max_examples=60, deadline=None)
@given(federations, st.sampled_from(["auto", "cpu", "cuda:3"]))
def test_toml_there_and_back(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any], device: str) -> None:
    path = tmp_path_factory.getbasetemp() / "config.toml"
    federation, own = Federation.parse(values), NodeSettings(device=device, out=Path("somewhere"))
    write_options(path, federation, own)
    again, own_again = parse_options(read_options(path), NodeSettings, source=str(path))
    assert again == federation
    assert again.agreed() == federation.agreed()
    assert own_again.device == device
    assert own_again.out is None  # a rerun writes its own folder


def test_a_file_may_spell_its_keys_like_flags(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('nodes = 4\nmerge-every = 0\nlocal_steps = 2\nmethod = "fedmd"\ndevice = "cpu"\n')
    federation, own = parse_options(read_options(path), NodeSettings)
    assert (federation.nodes, federation.merge_every, federation.local_steps) == (4, 0, 2)
    assert (federation.method, own.device) == ("fedmd", "cpu")


def test_options_of_several_values_may_be_lists_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'peers = [\n  "bob=10.0.0.2:7001",  # a line each, with room for a word about it\n  "carol=10.0.0.3:7001",\n]\n'
        'model = ["mlp:64x2", "cnn"]\ntrain = ["layer4.*", "fc.*"]\n'
    )
    federation, own = parse_options(read_options(path), DaemonSettings, source=str(path))
    assert own.peers == "bob=10.0.0.2:7001,carol=10.0.0.3:7001"
    assert (federation.model, federation.train) == ("mlp:64x2,cnn", "layer4.*,fc.*")
    assert DaemonSettings.parse({"peers": []}).peers == ""


@pytest.mark.parametrize(
    ("one", "values", "message"),
    [
        (DaemonSettings, {"peers": [7001]}, "--peers [7001]: accepted is HOST:PORT or NAME=HOST:PORT"),
        (Federation, {"model": []}, "--model : accepted is a model"),
        (Federation, {"topology": ["mesh"]}, "--topology ['mesh']: accepted is a graph"),
        (Federation, {"rounds": [3]}, "--rounds [3]: accepted is a whole number"),
    ],
)
def test_other_lists_are_refused(one: type[Options], values: dict[str, Any], message: str) -> None:
    assert refusal(values, one).startswith(message)


def test_every_option_of_several_values_takes_a_list() -> None:
    several = {name for one, name in every_option() if one.about(name)["metavar"].endswith(SEVERAL)}
    assert several >= {"peers", "model", "train"}
    for one, name in every_option():
        if "separated by commas" in one.about(name)["accepted"]:
            assert name in several


def test_an_unknown_key_of_a_file_is_one_line_that_names_both(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("nodes = 4\nnode-count = 5\n")
    with pytest.raises(ConfigError) as caught:
        parse_options(read_options(path), NodeSettings, source=str(path))
    message = str(caught.value)
    assert message.startswith(f"{path}: unknown key 'node_count'; known keys: ")
    assert "device" in message and "nodes" in message  # of both sets
    assert "\n" not in message


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (b"nodes = = 3\n", "not a TOML file: "),
        (b"\xff\xfe\x00", "not a TOML file: "),
        (None, "No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(contents: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    if contents is not None:
        path.write_bytes(contents)
    with pytest.raises(ConfigError) as caught:
        read_options(path)
    assert str(caught.value).startswith(f"--config {path}: {said}")
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--config \S+: Is a directory$"):
        read_options(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"least_present": 0}, "--least-present 0: accepted is a whole number from 1"),
        ({"least_present": 3, "alone": True}, "--alone: means --least-present 1; accepted is one of the two, not 3"),
    ],
)
def test_how_many_must_be_there(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        ServiceSettings.parse(values)


def test_alone_is_one_that_must_be_there() -> None:
    assert ServiceSettings().chosen_presence is None
    assert ServiceSettings(alone=True).chosen_presence == ServiceSettings(least_present=1).chosen_presence == 1
