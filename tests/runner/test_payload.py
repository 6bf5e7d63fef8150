"""Every byte figure that the paper's tables bear out, and the presets that carry them."""

import pytest

from p2p_tally.errors import ConfigError
from runner.experiments import load_experiment, preset_names
from runner.payload import cell_bytes

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


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_loads_and_counts(preset: str) -> None:
    experiment = load_experiment(preset)
    names = [cell.name for cell in experiment.cells]
    assert len(set(names)) == len(names) > 0
    for cell in experiment.cells:
        counted = cell_bytes(cell)
        assert counted.payload_bytes >= 0
        assert counted.sent_bytes >= 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("titel = 'x'", "unknown key 'titel'"),
        ("[facts]\nclasses = 2\nparameters = 1\n[[cells]]\nname = 'a'\nalpha = 2", "cell a: --alpha 2: accepted is"),
        ("[facts]\nclasses = 2\nparameters = 1\n[[cells]]\nname = 'a'\nalhpa = 2", "cell a: unknown key 'alhpa'"),
        ("[facts]\nclasses = 2\n[[cells]]\nname = 'a'", "facts lack 'parameters'"),
        ("[facts]\nclasses = 2\nparameters = 1", "has no [[cells]]"),
        ("accounting = 'moon'", "accepted is star or mesh"),
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


def test_an_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"preset nope: accepted is one of .*bridge.*default"):
        load_experiment("nope")
