"""The commands as a user types them: output, exit codes, one-line errors."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import in_process
from typer.testing import CliRunner

from p2p_tally import cli
from p2p_tally.runner.runs.run import RoundLine

QUICK = ["--nodes", "2", "--rounds", "3", "--local-steps", "1"]


def test_simulate_prints_one_line_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = in_process(["simulate", *QUICK, "--json", "--out", str(tmp_path / "run")], monkeypatch, capsys)
    assert code == 0
    assert len(out.splitlines()) == 1
    assert json.loads(out).keys() == {
        "method", "nodes", "topology", "rounds", "seed", "tail_accuracy", "peak_accuracy", "cross_peer_std", "accuracy",
        "own_tail_accuracy", "payload_bytes", "framed_bytes", "parameters_sha256", "seconds", "run",
    }  # fmt: skip


def test_simulate_shows_a_table_and_makes_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for expected in ("runs/tally-mesh-2-seed0", "runs/tally-mesh-2-seed0-2"):
        code, out, _ = in_process(["simulate", *QUICK], monkeypatch, capsys)
        assert code == 0
        assert "node-1" in out
        assert f"run folder: {expected}" in out
        assert (tmp_path / expected / "summary.json").exists()


@pytest.mark.parametrize("engine", ["exact", "stacked", "auto"])
def test_every_engine_sends_the_same_bytes_and_auto_says_which_it_took(
    engine: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    arguments = ["simulate", *QUICK, "--engine", engine, "--json", "--out", str(tmp_path / "run")]
    code, out, _ = in_process(arguments, monkeypatch, capsys)
    assert code == 0
    assert json.loads(out)["payload_bytes"] == 3 * 16
    assert ("--engine auto: stacked for 2 nodes" in caplog.text) == (engine == "auto")


@pytest.mark.parametrize("checkpoint_seconds", ["1e-9", "0"])
def test_an_interrupted_simulation_says_how_to_go_on_and_does(
    checkpoint_seconds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from p2p_tally.runner.console.progress import Progress

    def interrupt(_: Progress, line: RoundLine) -> None:
        if line.round == 2:
            signal.raise_signal(signal.SIGINT)

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "show", interrupt)
        arguments = ["simulate", *QUICK, "--checkpoint-seconds", checkpoint_seconds, "--out", str(folder)]
        code, _, err = in_process(arguments, patch, capsys)
    kept = checkpoint_seconds != "0"
    how = f"go on with: p2p-tally simulate --resume {folder}" if kept else "there is no checkpoint to go on from"
    assert (code, err.splitlines()[-1]) == (130, f"p2p-tally: stopped; {how}")
    code, out, _ = in_process(["simulate", "--resume", str(folder), "--device", "cpu", "--json"], monkeypatch, capsys)
    assert (code, json.loads(out)["payload_bytes"]) == (0, 3 * 16)

    for arguments, said in (
        (["simulate", "--resume", str(folder)], "that run is finished"),
        (
            ["simulate", "--resume", str(folder), "--rounds", "9"],
            "accepted beside it is --checkpoint-seconds",
        ),
        (["simulate", "--resume", "nowhere"], "--resume nowhere: no config.toml there; accepted is the folder of"),
        (["launch", "--resume", str(folder)], f"another command; go on with: p2p-tally simulate --resume {folder}"),
    ):
        code, _, err = in_process(arguments, monkeypatch, capsys)
        assert code == 2
        assert said in err


def test_an_unknown_engine_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = in_process(["simulate", "--engine", "warp"], monkeypatch, capsys)
    assert (code, err) == (2, "p2p-tally: --engine warp: accepted is exact, stacked or auto\n")


@pytest.mark.parametrize("option", ["--on", "--engine"])
def test_where_processes_run_is_named_by_on_and_by_its_old_name(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    no_such_graph = ["--nodes=7", "--topology=gossip", "--degree=3"]  # found once the place is known
    code, _, err = in_process(["launch", option, "local", *no_such_graph], monkeypatch, capsys)
    assert (code, len(err.splitlines())) == (2, 1)
    assert err.startswith("p2p-tally: gossip of 7")
    warnings = ["--engine local: this option is now --on local"] if option == "--engine" else []
    assert caplog.messages == warnings
    code, _, err = in_process(["sweep", "default", option, "mars"], monkeypatch, capsys)
    assert (code, err) == (2, f"p2p-tally: {option} mars: accepted is local or ray\n")
    assert caplog.messages == warnings


def test_the_old_name_of_an_option_is_not_in_the_help() -> None:
    text = CliRunner().invoke(cli.app, ["sweep", "--help"], env={"COLUMNS": "200"}).output
    assert "--on " in text and "--engine" not in text


def test_the_old_and_the_new_name_of_an_option_do_not_go_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = in_process(["launch", "--on", "local", "--engine", "ray"], monkeypatch, capsys)
    assert (code, err.splitlines()[-1]) == (
        2,
        "p2p-tally: --engine ray: the old name of --on, which is given too; accepted is --on alone",
    )


def test_a_flag_wins_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "mine.toml"
    config.write_text('nodes = 3\nrounds = 2\nlocal-steps = 1\nmethod = "fedavg"\n')
    arguments = ["simulate", "--config", str(config), "--nodes", "2", "--json", "--out", str(tmp_path / "run")]
    code, out, _ = in_process(arguments, monkeypatch, capsys)
    assert code == 0
    summary = json.loads(out)
    assert (summary["nodes"], summary["rounds"], summary["method"]) == (2, 2, "fedavg")


def npz(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path, **arrays)
    return f"npz:{path}"


BAD = [
    (["--nodes", "-1"], "--nodes -1: accepted is a whole number from 1"),
    (["--nodes", "two"], "--nodes two: accepted is a whole number from 1"),
    (["--method", "gossip"], "--method gossip: accepted is one of tally, local,"),
    (["--alpha", "2"], "--alpha 2: accepted is a number from 0 to 1"),
    (["--alpha", "nan"], "--alpha nan: accepted is a number from 0 to 1"),
    (["--topology", "moebius"], "accepted: mesh, ring, gossip"),
    (["--topology", "gossip", "--nodes", "5", "--degree", "3"], "degree"),
    (["--data", "npz:/nowhere.npz"], "--data npz:/nowhere.npz: No such file or directory"),
    (["--data", "mnist"], "--data mnist: accepted is one of"),
    (["--model", "transformer"], "--model transformer: accepted is auto,"),
    (["--model", "nowhere.at:all"], "no module named 'nowhere'"),
    (["--partition", "dirichlet:-1"], "--partition dirichlet:-1: accepted after the colon is a positive number"),
    (["--partition", "dirichlet:0.0001", "--nodes", "64"], "take a larger number after the colon, fewer nodes"),
    (["--probes-per-round", "1000"], "--probes-per-round 1000: accepted is at most the pool's 200 probes"),
    (["--tail", "99", "--rounds", "9"], "--tail 99: accepted is at most the number of rounds, 9"),
    (["--device", "tpu"], "--device tpu: accepted is auto, cpu, cuda or cuda:N"),
    (["--device", "cuda:7"], "--device cuda:7: this machine has"),
    (["--config", "nowhere.toml"], "--config nowhere.toml: No such file or directory"),
    (["--nosuch", "1"], "No such option: --nosuch"),
    (["--warmup", "auto", "--nodes"], "requires an argument"),
]


@pytest.mark.parametrize(
    ("options", "message"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_input_is_one_clear_line(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = in_process(["simulate", *options], monkeypatch, capsys)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert err.startswith("p2p-tally: ")
    assert message in err
    assert not any((tmp_path / "runs").glob("*/summary.json"))


def test_bad_data_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = np.zeros((40, 4), np.float32), np.arange(40) % 3
    task = npz(tmp_path / "task.npz", x_train=x, y_train=y, x_test=x + 1, y_test=y)
    cases = [
        (["--data", npz(tmp_path / "a.npz", x_train=x, x_test=x)], "has no array 'y_train'"),
        (["--data", task, "--probes", npz(tmp_path / "b.npz", x=x), "--alpha", "0.5"], "the probes carry no labels"),
        (
            ["--data", task, "--probes", npz(tmp_path / "c.npz", x=x, y=y + 7)],
            "labels up to class 9, but the data has 3",
        ),
        (["--data", task, "--probes", npz(tmp_path / "d.npz", x=x[:, :2], y=y)], "inputs of shape (2,)"),
        (["--data", task, "--probes", npz(tmp_path / "e.npz", x=x), "--warmup", "auto"], "--warmup auto"),
    ]
    for options, message in cases:
        code, _, err = in_process(["simulate", *QUICK, *options], monkeypatch, capsys)
        assert code == 2, options
        assert len(err.splitlines()) == 1, err
        assert message in err


def test_a_folder_in_use_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").write_text("data")
    code, _, err = in_process(["simulate", *QUICK, "--out", str(tmp_path)], monkeypatch, capsys)
    assert code == 2
    assert "not empty; accepted is a new or empty folder" in err
    assert (tmp_path / "precious").read_text() == "data"
    assert list(tmp_path.iterdir()) == [tmp_path / "precious"]


def test_payload_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = in_process(["payload", "bridge", "--json"], monkeypatch, capsys)
    assert code == 0
    values = json.loads(out)
    assert values["preset"] == "bridge"
    cell = next(cell for cell in values["cells"] if cell["name"] == "tally+fa200")
    assert cell["accounting"] == "star"
    assert cell["payload_bytes"] == 1_252_732_704
    assert cell["sent_bytes"] == 1_127_498_313.6


def test_payload_as_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = in_process(["payload", "hybrid"], monkeypatch, capsys)
    assert code == 0
    assert "311,040,000" in out


def test_topology_as_json_and_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "ring.svg"
    code, out, _ = in_process(
        ["topology", "ring", "--nodes", "8", "--json", "--plot", str(picture)], monkeypatch, capsys
    )
    assert code == 0
    facts = json.loads(out)
    assert (facts["nodes"], facts["edges"], facts["degree"], facts["diameter"]) == (8, 8, [2, 2], 4)
    assert facts["spectral_gap"] == pytest.approx(1 - (1 + 2 * np.cos(np.pi / 4)) / 3)
    assert "<svg" in picture.read_text()


def test_topologies_compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = in_process(["topology", "mesh", "ring", "--nodes", "16"], monkeypatch, capsys)
    assert code == 0
    assert "mesh" in out
    assert "ring" in out
    assert "N = 4C + 1 = 41" in out


def test_no_figure_of_a_table_is_cut_off(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    names = ["mesh", "gossip", "one-peer-exponential"]
    code, out, _ = in_process(["topology", *names, "--nodes", "256", "--parameters", "11181642"], monkeypatch, capsys)
    assert code == 0
    assert "…" not in out
    assert "one-peer-exponential" in out and "357,812,544" in out


def test_status_of_a_node_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = in_process(["status", "127.0.0.1:9"], monkeypatch, capsys)
    assert code == 1 and "unreachable" in out
    code, out, _ = in_process(["status", "127.0.0.1:9", "--json"], monkeypatch, capsys)
    assert code == 1
    node = json.loads(out)["nodes"][0]
    assert (node["url"], node["name"], node["phase"]) == ("127.0.0.1:9", None, "unreachable")
    assert node["error"] == "Connection refused"


@pytest.mark.parametrize(
    "command",
    [
        *("simulate", "launch", "node", "payload", "topology", "status", "sweep", "report"),
        *("predict", "evaluate", "export"),
    ],
)
def test_every_command_has_help(command: str) -> None:
    result = CliRunner().invoke(cli.app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


@pytest.mark.parametrize("command", ["simulate", "launch", "node"])
def test_shared_options_are_in_every_help(command: str) -> None:
    text = CliRunner().invoke(cli.app, [command, "--help"], env={"COLUMNS": "200"}).output
    shared = """nodes topology degree method rounds local-steps batch probes-per-round warmup alpha kl-decay merge-every
    ballot lr weight-decay data probes partition model seed device eval-every out json config"""
    for option in shared.split():
        assert f"--{option} " in text or f"--{option}\n" in text, option


def test_listening_beyond_this_machine_needs_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["node", "--listen", "0.0.0.0:0", "--out", str(tmp_path)]
    code, _, err = in_process(arguments, monkeypatch, capsys)
    assert code == 2
    assert "nothing there is encrypted or authenticated" in err
    assert "--insecure" in err


def test_a_fault_of_ours_keeps_its_traceback(tmp_path: Path) -> None:
    program = (
        "import sys; from p2p_tally import cli; import p2p_tally.runner.simulation.simulate as s\n"
        "def broken(*_): raise RuntimeError('a bug')\n"
        "s.simulate = broken\n"
        f"sys.argv = ['p2p-tally', 'simulate', '--out', {str(tmp_path / 'x')!r}]\n"
        "cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "RuntimeError: a bug" in done.stderr
