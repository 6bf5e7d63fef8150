"""Options from the environment: every option of every command, whose value wins, and who is blamed."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import in_process
from typer.testing import CliRunner

from p2p_tally import cli
from p2p_tally.cli_environment import read_environment, unknown_variables
from p2p_tally.options import variable_of
from p2p_tally.runner import processes

GROUP: Any = typer.main.get_command(cli.app)


def every_option() -> Iterator[tuple[str, str]]:
    for name, command in GROUP.commands.items():
        for option in command.params:
            if option.param_type_name == "option" and not option.hidden:
                yield name, option.opts[0]


@pytest.mark.parametrize(("command", "flag"), list(every_option()))
def test_every_option_of_every_command_has_a_variable(command: str, flag: str) -> None:
    variable = variable_of(flag)
    assert variable == "P2P_TALLY_" + flag[2:].upper().replace("-", "_")
    found = read_environment(GROUP, [command], {variable: "1"})
    assert list(found.values) == [flag]
    [given] = found.default_map[command].values()
    assert given in (True, "1", ["1"])
    for words in ([command, flag, "2"], [command, f"{flag}=2"]):  # the command line wins
        assert read_environment(GROUP, words, {variable: "1"}).values == {}
    assert list(unknown_variables(GROUP, {variable: "1"})) == []


def test_command_line_over_environment_over_file_over_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "mine.toml"
    config.write_text('rounds = 5\nseed = 5\nnodes = 5\nlocal_steps = 1\nmethod = "fedavg"\n')
    monkeypatch.setenv("P2P_TALLY_CONFIG", str(config))
    monkeypatch.setenv("P2P_TALLY_JSON", "1")
    monkeypatch.setenv("P2P_TALLY_OUT", str(tmp_path / "run"))
    for name, value in (("NODES", "3"), ("SEED", "3"), ("TOPOLOGY", "")):
        monkeypatch.setenv(f"P2P_TALLY_{name}", value)
    code, out, err = in_process(["simulate", "--nodes", "2"], monkeypatch, capsys)
    assert code == 0, err
    summary = json.loads(out)
    assert (summary["nodes"], summary["seed"], summary["rounds"], summary["method"]) == (2, 3, 5, "fedavg")
    assert (summary["topology"], summary["run"]) == ("mesh", str(tmp_path / "run"))  # an empty variable is none


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("true", True), ("True", True), ("0", False), ("false", False)]
)
def test_a_flag_is_on_or_off(text: str, value: bool) -> None:
    found = read_environment(GROUP, ["node"], {"P2P_TALLY_RESUME": text})
    assert found.default_map == {"node": {"resume": value}}


def test_a_flag_that_is_off_wins_over_the_file(tmp_path: Path) -> None:
    """`resume` of a node is a flag; that of a simulation is a folder, and gets the text as it is."""
    found = read_environment(GROUP, ["simulate"], {"P2P_TALLY_RESUME": "0", "P2P_TALLY_DOWNLOAD": "0"})
    assert found.values == {"--resume": "0", "--download": False}


@pytest.mark.parametrize(
    ("arguments", "variable", "value", "message"),
    [
        (["simulate"], "ALPHA", "2", "--alpha 2: accepted is a number from 0 to 1"),
        (["simulate"], "TAIL", "400", "--tail 400: accepted is at most the number of rounds, 300"),
        (["topology", "ring"], "NODES", "many", "Invalid value for '--nodes': "),
        (["node"], "ADMIN", "7101", "--admin 7101: accepted is HOST:PORT"),
        (["simulate", "--resume", "x"], "ROUNDS", "9", "--rounds: --resume goes on with the run as it was"),
    ],
)
def test_a_bad_value_is_named_with_its_variable(
    arguments: list[str],
    variable: str,
    value: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(f"P2P_TALLY_{variable}", value)
    code, _, err = in_process(arguments, monkeypatch, capsys)
    assert (code, len(err.splitlines())) == (2, 1)
    assert err.startswith(f"p2p-tally: P2P_TALLY_{variable}: {message}")


def test_a_bad_flag_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("P2P_TALLY_DOWNLOAD", "maybe")
    code, _, err = in_process(["simulate"], monkeypatch, capsys)
    assert (code, err) == (2, "p2p-tally: P2P_TALLY_DOWNLOAD maybe: accepted is 1 or true, 0 or false\n")
    assert in_process(["topology", "ring", "--json"], monkeypatch, capsys)[0] == 0  # which has no such option


def test_a_bad_value_of_the_command_line_is_not_blamed_on_a_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("P2P_TALLY_ALPHA", "0.5")
    _, _, err = in_process(["simulate", "--alpha=2"], monkeypatch, capsys)
    assert err == "p2p-tally: --alpha 2: accepted is a number from 0 to 1\n"


def test_an_unknown_variable_gets_one_warning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("P2P_TALLY_MERGE_EVRY", "3")
    monkeypatch.setenv("P2P_TALLY_BROWSER", "required")
    monkeypatch.setenv("P2P_TALLY_HOME", str(tmp_path))
    assert in_process(["topology", "ring", "--json"], monkeypatch, capsys)[0] == 0
    assert caplog.messages == ["P2P_TALLY_MERGE_EVRY: no option has this variable; did you mean P2P_TALLY_MERGE_EVERY?"]


def test_a_repeatable_option_takes_a_value_a_line() -> None:
    found = read_environment(GROUP, ["sweep"], {"P2P_TALLY_NOTE": "one, two\nthree"})
    assert found.values == {"--note": ["one, two", "three"]}


def test_the_help_says_so_once() -> None:
    text = CliRunner().invoke(cli.app, ["--help"], env={"COLUMNS": "120"}).output
    assert text.count("P2P_TALLY_") == 1
    for command in ("simulate", "node"):
        assert "P2P_TALLY_" not in CliRunner().invoke(cli.app, [command, "--help"]).output


async def test_a_process_that_another_starts_has_the_options_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the environment says is in that file already, below what the command line said."""
    monkeypatch.setenv("P2P_TALLY_NODES", "3")
    with (tmp_path / "log").open("wb") as log:
        process = await processes.start(["topology", "ring", "--json"], log=log)
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert json.loads(out)["nodes"] == 8
