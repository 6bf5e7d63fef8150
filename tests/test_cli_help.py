"""What a newcomer sees first: help, version, completion, and which names are accepted."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from p2p_tally import __version__, cli
from p2p_tally.cli_help import table_keys
from p2p_tally.option_types import METHOD_NAMES


def help_of(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, [*arguments, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.output


def sections(text: str) -> dict[str, str]:
    """Heading -> what stands below it."""
    found: dict[str, str] = {}
    heading = ""
    for line in text.splitlines():
        if line and not line.startswith(" "):
            heading = line.partition(":")[0]
        found[heading] = found.get(heading, "") + line + "\n"
    return found


def called(*arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["p2p-tally", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0), capsys.readouterr().out


def test_the_command_alone_prints_its_help(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out = called(capsys=capsys, monkeypatch=monkeypatch)
    assert (code, out.splitlines()[0]) == (0, "Usage: p2p-tally [OPTIONS] COMMAND [ARGS]...")
    assert "\n  simulate " in out


def test_version(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert called("--version", capsys=capsys, monkeypatch=monkeypatch) == (0, f"p2p-tally {__version__}\n")


@pytest.mark.parametrize(("command", "first"), [("simulate", 22), ("launch", 20), ("node", 28)])
def test_the_options_that_matter_come_first(command: str, first: int) -> None:
    parts = sections(help_of(command))
    assert list(parts)[1:4] == ["Options", "Accepted names", "Votes"]
    assert "--mu " in parts["Some methods"] and "--mu " not in parts["Options"]
    assert "--method " in parts["Options"] and "--data " in parts["Options"]
    assert parts["Options"].count("\n  --") <= first


def test_every_option_of_the_help_stands_in_one_group() -> None:
    names = [word for line in help_of("simulate").splitlines() if line[:4] == "  --" for word in line.split()[:1]]
    accepted = {"--method", "--topology", "--data", "--model"}
    assert {name for name in names if names.count(name) > 1} == accepted


@pytest.mark.parametrize("command", ["simulate", "launch", "node"])
def test_the_help_lists_every_accepted_name(command: str) -> None:
    from p2p_tally.learning.data import source_names
    from p2p_tally.learning.models import models
    from p2p_tally.topologies.graphs import NAMES

    listed = set(sections(help_of(command))["Accepted names"].replace(",", " ").split())
    assert listed >= {*METHOD_NAMES, *NAMES, *source_names(), *models()}


def test_names_are_read_without_torch_as_they_are_with_it() -> None:
    from p2p_tally.learning.data import source_names
    from p2p_tally.learning.models import models

    assert table_keys("data", "SOURCES") == source_names()
    assert table_keys("models", "MODELS") == sorted(models())


def test_help_loads_no_torch(quiet_environment: dict[str, str]) -> None:
    program = (
        "import sys; from p2p_tally import cli; sys.argv = ['p2p-tally', 'simulate', '--help']\n"
        "try: cli.main()\n"
        "except SystemExit: print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, env=quiet_environment
    )
    assert done.stdout.splitlines()[-1] == "False", done.stderr


def test_the_help_of_topology_describes_every_graph() -> None:
    from p2p_tally.topologies.graphs import NAMES

    words = " ".join(help_of("topology").split())
    for name, meaning in NAMES.items():
        assert f"{name} {meaning}" in words


def test_a_node_has_no_topology_by_default() -> None:
    """Without --topology its --peers are its neighbours, and it does not know how many nodes there are."""
    options = sections(help_of("node"))["Options"]
    topology = options[options.index("--topology") : options.index("--degree")]
    assert "default" not in topology
    assert "[default: ]" not in options
    assert "[default: mesh]" in help_of("launch")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("p2p-tally simulate --merge-e", "--merge-every"),
        ("p2p-tally simulate --method dil", "diloco"),
        ("p2p-tally launch --topology hyp", "hypercube"),
        ("p2p-tally node --data cifar1", "cifar10 cifar100"),
        ("p2p-tally rep", "report"),
    ],
)
def test_a_shell_completes(typed: str, offered: str, quiet_environment: dict[str, str]) -> None:
    asked = {"_P2P_TALLY_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    program = "import sys; from p2p_tally import cli; sys.argv = ['p2p-tally']; cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, env=quiet_environment | asked
    )
    assert done.stdout.split() == offered.split(), done.stderr
