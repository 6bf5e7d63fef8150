"""Every byte figure that the paper's tables bear out, and the presets that carry them."""

from pathlib import Path
from typing import Any

import pytest
from conftest import small

from p2p_tally.errors import ConfigError
from p2p_tally.runner.experiments.experiment import ByteFacts, Cell, load_experiment, preset_names
from p2p_tally.runner.experiments.payload import cell_bytes
from p2p_tally.runner.simulation.simulate import simulate

PAPER = {
    "hybrid": {"tally": 777_600, "fedmd": 311_040_000, "no-consensus": 0},
    "bridge": {
        "local": 0,
        "tally": 388_800,
        "fedavg-fa50": 5_367_188_160,
        "fedavg-fa200": 1_341_797_040,
        "fedavg-fa500": 536_718_816,
        "fedprox-fa50": 5_367_188_160,
        "fedprox-fa200": 1_341_797_040,
        "feddf": 268_359_408_000,
        "tally+fa200": 1_252_732_704,
        "fedmd+fa200": 1_267_895_904,
    },
    "language-model": {
        "tally": 309_657_600,
        "fedmd": 1_268_357_529_600,
        "fedavg-fa200": 2_452_531_200,
        "tally+fa200": 2_598_686_720,
        "fedavg-fa1": 490_506_240_000,
    },
    "cross-distribution": {
        "tally-T50": 216_000,
        "tally-T100": 216_000,
        "tally-T200": 216_000,
        "tally-T400": 216_000,
        "fedmd-T200": 8_640_000,
    },
    "no-decay": {"tally-T0": 216_000, "fedmd-T0": 8_640_000},
    "probes-per-round": {f"cifar10-b{b}": 9 * b * 2700 for b in (4, 16, 64, 256)}
    | {f"cifar100-b{b}": 9 * b * 2700 for b in (8, 32, 128)},
    "learning-rate": {f"k5-lr{lr}": 9 * 16 * 2700 for lr in (0.001, 0.003, 0.01)}
    | {f"k50-lr{lr}": 9 * 128 * 270 for lr in (0.001, 0.003)},
    "mechanisms": dict.fromkeys(("tally", "tally-disagreement", "tally-asymmetric", "tally-both"), 777_600),
    "rcfd": {"rcfd-k1": 388_800, "rcfd-k3": 15 * 388_800, "rcfd-k5": 25 * 388_800},
    "probe-pools": {f"in-{size}k": 388_800 for size in (2, 5, 10, 20)}
    | {f"stl10-{size}k": 216_000 for size in (10, 50, 100)}
    | {f"stl10-{size}k-anchor{anchor}k": 216_000 for size in (50, 100) for anchor in (1, 2)},
    "fedprox": {f"cifar10-fa50-mu{mu}": 5_367_188_160 for mu in (0.001, 0.01, 0.1)}
    | {f"cifar10-fa200-mu{mu}": 1_341_797_040 for mu in (0.001, 0.01, 0.1)}
    | {f"cifar100-fa50-mu{mu}": 60 * 8 * 11_227_812 for mu in (0.001, 0.01, 0.1)}
    | {f"cifar100-fa200-mu{mu}": 15 * 8 * 11_227_812 for mu in (0.001, 0.01, 0.1)},
    "default": {
        "local": 0,
        "no-consensus": 0,
        "tally": 30_240,
        "fedmd": 1_209_600,
        "fedavg-fa50": 230_880,
        "tally+fa50": 261_120,
        "fedavg-fa20": 577_200,
        "tally+fa20": 568_960,
        "fedavg-fa1": 11_544_000,
    },
}


@pytest.mark.parametrize("preset", list(PAPER))
def test_the_papers_accounting(preset: str) -> None:
    found = {cell.name: cell_bytes(cell).payload_bytes for cell in load_experiment(preset).cells}
    assert found == PAPER[preset]


def test_bytes_a_probe_of_rcfd() -> None:
    found = [cell_bytes(cell).bytes_per_probe for cell in load_experiment("rcfd").cells]
    assert found == [1, 15, 25]


def test_per_probe_ratios() -> None:
    """4C / b_C: 40, 400 and 4096 at C = 10, 100 and 2048."""
    for preset, ratio in (("default", 40), ("hybrid", 400), ("language-model", 4096)):
        cells = {cell.name: cell_bytes(cell) for cell in load_experiment(preset).cells}
        assert cells["fedmd"].bytes_per_probe / cells["tally"].bytes_per_probe == ratio


def test_what_is_sent_here() -> None:
    """An all-reduce sends 2 (N - 1) / N |W|; a faded channel sends T - 1 rounds of votes."""
    bridge = {cell.name: cell_bytes(cell).sent_bytes for cell in load_experiment("bridge").cells}
    assert bridge["fedavg-fa50"] == 60 * 8 * 9 * 11_181_642 / 10
    assert bridge["feddf"] == (3000 * 8 * 9 * 11_181_642) // 10 + 3000 * 9 * 16 * 40
    crossed = {cell.name: cell_bytes(cell).sent_bytes for cell in load_experiment("cross-distribution").cells}
    assert crossed["tally-T200"] == 9 * 16 * 199


def test_what_coded_merges_send() -> None:
    """As the runs' ledgers have it: 601 or 602 parameters a segment, in 3 blocks, each with a scale."""
    cells = {cell.name: cell_bytes(cell) for cell in load_experiment("merge-precision").cells}
    votes = 7 * 9 * 270  # coded: at most a byte more than packed
    assert {name: found.sent_bytes - votes for name, found in cells.items()} == {
        "float32": 6 * 2 * 7 / 8 * 4 * 4810,
        "bfloat16": 6 * 2 * 7 / 8 * 2 * 4810,
        "int8": 6 * 2 * 7 / 8 * (4810 + 8 * 3 * 4),
        # 61 of 601 or 602 values and one scale; their places in l = 3 bits, and 61 + 75 bits of unary.
        "int8-top10": 2 * 7 / 8 * ((4810 + 8 * 3 * 4) + 5 * 8 * (61 + 4 + 40)),
    }
    assert len({found.payload_bytes for found in cells.values()}) == 1  # the paper counts float32


def test_what_rounded_probabilities_send() -> None:
    """Bytes a probe, to 7 neighbours, of 16 probes in 270 rounds."""
    cells = {cell.name: cell_bytes(cell) for cell in load_experiment("soft-precision").cells}
    each = {"tally": 1, "fedmd": 40, "fedmd-float16": 20, "fedmd-int8": 10, "rcfd-int8": 6}
    for name, count in each.items():
        assert cells[name].bytes_per_probe == count
        assert cells[name].sent_bytes == 7 * 16 * 270 * count


@pytest.mark.parametrize(
    "options",
    [
        {"topology": "gossip-k:1", "degree": 3, "hops": 2, "nodes": 12},  # others are within reach in each round
        {"topology": "matchings", "nodes": 5, "method": "feddf", "merge_every": 2},
        {"topology": "star", "nodes": 5, "method": "rcfd", "kl_decay": 4},
        {"method": "dspodfl", "merge_every": 1, "topology": "ring"},  # each merge draws its links anew
        {"method": "pame", "merge_every": 1, "coordinates_sent": 0.07},
        {"method": "spod-gt", "merge_every": 2, "links_used": 0.3},
        {"method": "dpfl", "topology": "ring"},
        {"method": "dfml", "topology": "star"},
        {"method": "fedspd", "topology": "star", "merge_every": 2},
        {"method": "fedkd", "topology": "ring", "mentor": "mlp:9", "factor_rank": 3},  # which never travels
    ],
    ids=str,
)
def test_a_run_sends_what_was_counted_before(options: dict[str, Any]) -> None:
    federation = small(**options)
    layout = ((64, 64), (64,), (10, 64), (10,))
    cell = Cell("a", federation, ByteFacts(classes=10, parameters=4810, layout=layout), "star")
    assert cell_bytes(cell).sent_bytes == pytest.approx(simulate(federation).lines[-1].payload_bytes)


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_loads_and_counts(preset: str) -> None:
    experiment = load_experiment(preset)
    names = [cell.name for cell in experiment.cells]
    assert len(set(names)) == len(names) > 0
    for cell in experiment.cells:
        counted = cell_bytes(cell)
        assert counted.payload_bytes >= 0
        assert counted.sent_bytes >= 0


def data_of(preset: str) -> str:
    return str(load_experiment(preset).cells[0].federation.data)


# Experiments on digits and on frozen features are small as they are.
FULL = [
    name
    for name in preset_names()
    if not name.endswith(("-small", "-text"))
    and data_of(name) != "digits"
    and not data_of(name).startswith("features:")
]


SHARE = {"bridge": 5}  # of the paper's rounds; of the others a tenth


@pytest.mark.parametrize("preset", FULL)
def test_a_small_twin_is_the_full_one_with_its_rounds_in_proportion(preset: str) -> None:
    full, small, share = load_experiment(preset), load_experiment(f"{preset}-small"), SHARE.get(preset, 10)
    assert len(small.cells) == len(full.cells)
    for large, little in zip(full.cells, small.cells, strict=True):
        assert little.paper == large.paper
        one, other = large.federation, little.federation
        same = ("nodes", "method", "local_steps", "alpha", "mu", "top_k", "partition")
        assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]
        assert one.batch == other.batch or preset == "language-model"
        assert one.rounds == share * other.rounds
        assert one.kl_decay == share * other.kl_decay
        assert one.warmup is None or one.warmup == share * other.warmup
        assert one.merge_every in (None, 0, 1) or one.merge_every == share * other.merge_every


# Large grids, with a third of the paper's rounds.
SHORTER = {"fedprox", "probe-pools", "probes-per-round"}
ON_FEATURES = [name for name in preset_names() if name.endswith("-features")]


@pytest.mark.parametrize("preset", [name for name in FULL if name not in ("language-model", "merge-precision")])
def test_a_twin_on_features_has_the_papers_numbers(preset: str) -> None:
    full, twin = load_experiment(preset), load_experiment(f"{preset}-features")
    assert len(twin.cells) == len(full.cells)
    assert [one.claim for one in twin.findings if one.claim not in {other.claim for other in full.findings}] == []
    assert len(twin.findings) == len(full.findings)
    of_the_data = {"data", "probes", "probe_count", "model", "eval_every", "tail"}
    if preset in SHORTER:
        assert {cell.federation.rounds for cell in twin.cells} == {1000}
        of_the_data |= {"rounds", "warmup"}
    for resnet, head in zip(full.cells, twin.cells, strict=True):
        assert head.paper == resnet.paper
        assert head.federation.model_dump(exclude=of_the_data) == resnet.federation.model_dump(exclude=of_the_data)
        assert head.federation.start == "own"
        assert str(head.federation.data).startswith("features:")
        assert head.federation.tail == (100 if preset in SHORTER else head.federation.rounds // 30)


@pytest.mark.parametrize("preset", [name for name in ON_FEATURES if name != "recipe-features"])
def test_the_facts_of_the_presets_on_features_are_those_of_their_heads(preset: str) -> None:
    from p2p_tally.learning import models
    from p2p_tally.learning.architectures import of_rank

    for cell in load_experiment(preset).cells:
        model = models.build(of_rank(cell.federation, 0), "mlp", (256,), cell.facts.classes, 0)
        assert sum(parameter.numel() for parameter in model.parameters()) == cell.facts.parameters
        assert cell.facts.classes == (100 if "cifar100" in str(cell.federation.data) else 10)


@pytest.mark.parametrize("preset", ["bridge-features", "votes-or-labels-features"])
def test_cells_on_features_send_what_was_counted(preset: str) -> None:
    """A few rounds of each on digits."""
    tiny = {"data": "digits", "model": "mlp", "probe_count": None, "nodes": 3, "rounds": 12, "local_steps": 1}
    tiny |= {"warmup": 3, "eval_every": 12, "tail": 1, "test_count": 50}
    for cell in load_experiment(preset).cells:
        every = cell.federation.merge_every
        federation = cell.federation.model_copy(update=tiny | {"merge_every": every and max(1, every // 50)})
        counted = cell_bytes(Cell(cell.name, federation, ByteFacts(classes=10, parameters=4810), "star")).sent_bytes
        assert counted == pytest.approx(simulate(federation).lines[-1].payload_bytes), cell.name


def test_the_facts_of_the_small_presets_are_those_of_their_models() -> None:
    from p2p_tally.learning import models

    for preset in (name for name in preset_names() if name.endswith("-small")):
        for cell in load_experiment(preset).cells:
            text = cell.federation.data == "wikitext2"
            shape = (cell.federation.context,) if text else (3, 32, 32)
            model = models.build(cell.federation, "cnn", shape, cell.facts.classes, 0)
            assert sum(parameter.numel() for parameter in model.parameters()) == cell.facts.parameters


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[cells]]\nname = 'a'\n[[cells]]\nname = 'a/b'", "facts lack 'classes'"),
        ("[[cells]]\nname = '../a'", "name '../a': accepted is a name of its own"),
        (
            "[facts]\nclasses = 2\nparameters = 1\n[[cells]]\nname = 'a'\n[[cells]]\nname = 'a'",
            "name 'a': accepted is a name of its own",
        ),
        ("[[cells]]\nname = 'a'\npaper = { tial = 3 }", "cell a, paper: unknown key 'tial'"),
        ("full = 'nope'\n[[cells]]\nname = 'a'", "full 'nope': accepted is the name of an experiment file"),
        ("base = 3", "base: accepted is a table"),
        ("cells = [3]", "cells: accepted are tables"),
        ("titel = 'x'", "unknown key 'titel'"),
        ("[facts]\nclasses = 2\nparameters = 1\n[[cells]]\nname = 'a'\nalpha = 2", "cell a: --alpha 2: accepted is"),
        ("[facts]\nclasses = 2\nparameters = 1\n[[cells]]\nname = 'a'\nalhpa = 2", "cell a: unknown key 'alhpa'"),
        ("[facts]\nclasses = 2\n[[cells]]\nname = 'a'", "facts lack 'parameters'"),
        ("[facts]\nclasses = 2\nparameters = 1", "has no [[cells]]"),
        ("accounting = 'moon'", "accepted is star or mesh"),
        (
            "[facts]\nclasses = 2\nparameters = 5\nlayout = [[2, 2], ['x']]\n[[cells]]\nname = 'a'",
            "facts: layout [[2, 2], ['x']]: accepted are the shapes of tensors: [[64, 64], [64]]",
        ),
        (
            "[facts]\nclasses = 2\nparameters = 5\nlayout = [[2, 2]]\n[[cells]]\nname = 'a'",
            "facts: layout: accepted are shapes of as many values as 'parameters' says",
        ),
        (
            "[facts]\nclasses = 'ten'\nparameters = 1\n[[cells]]\nname = 'a'",
            "classes 'ten': accepted is",
        ),
        ("[facts]\nclasses = 2\nparameters = -3\n[[cells]]\nname = 'a'", "parameters -3: accepted is a whole number"),
        (
            "[facts]\nclasses = 2\nparameters = 1\n[[cells]]\nname = 'a'\npaper = {tail = 'high'}",
            "cell a, paper: tail 'high': accepted is a number",
        ),
        ("[[cells", "not a TOML file"),
    ],
)
def test_a_bad_experiment_file_is_one_line(text: str, message: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_experiment(str(path))
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_twins_of_each_other_are_refused(tmp_path: Path) -> None:
    for name, other in ("ab", "ba"):
        (tmp_path / f"{name}.toml").write_text(f"full = '{other}'\n[[cells]]\nname = 'x'\ntwin = ['y']")
    with pytest.raises(ConfigError, match=r"full 'b': accepted is .* that is no twin itself"):
        load_experiment(str(tmp_path / "a.toml"))


def test_a_graph_that_is_none_is_the_files_mistake(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[facts]\nclasses = 2\nparameters = 1\n[[cells]]\nname = 'a'\ntopology = 'moebius'")
    with pytest.raises(ConfigError, match="cell a: topology 'moebius' is unknown; accepted: mesh"):
        cell_bytes(load_experiment(str(path)).cells[0])


def test_an_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"preset nope: accepted is one of .*bridge.*default"):
        load_experiment("nope")
