"""N daemons as processes: the same bits as simulated, nothing left behind, and a stopped launch that goes on."""

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import command, in_process, small, wait_until

from p2p_tally.config import ServiceSettings, parse_options, read_options
from p2p_tally.ids import NodeName
from p2p_tally.runner.launch.daemons import LaunchedNode, LaunchPlan, LocalDaemons
from p2p_tally.runner.launch.launcher import LaunchFailed, launch
from p2p_tally.runner.simulation.simulate import simulate

OPTIONS = ["--nodes=3", "--rounds=60", "--warmup=4", "--merge-every=20", "--local-steps=2", "--eval-every=7"]


def run_json(arguments: list[str], environment: dict[str, str]) -> dict[str, object]:
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    return json.loads(done.stdout)


def daemons_of(folder: Path) -> set[int]:
    return {int(path.read_text()) for path in folder.glob("*.pid")}


def gone(pid: int) -> bool:
    """No such process, or only its entry waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def test_launched_equals_simulated(
    tmp_path: Path,
    quiet_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    launched = run_json(command("launch", *OPTIONS, "--json", f"--out={tmp_path / 'launched'}"), quiet_environment)
    arguments = ["simulate", *OPTIONS, "--json", f"--out={tmp_path / 'simulated'}"]
    simulated = json.loads(in_process(arguments, monkeypatch, capsys)[1])
    for field in ("parameters_sha256", "accuracy", "tail_accuracy", "peak_accuracy", "payload_bytes", "framed_bytes"):
        assert launched[field] == simulated[field], field
    if sys.platform == "linux":  # whose kernel counts: headers are on top of what was framed
        assert launched["wire_bytes"] > launched["framed_bytes"]
    files = {path.name for path in (tmp_path / "launched").iterdir()}
    assert files >= {"config.toml", "rounds.jsonl", "summary.json", "accuracy.svg", "node-0.safetensors", "node-0.log"}
    assert not [name for name in files if name.endswith(".pid")]
    # The folder's config.toml alone reruns the run.
    federation, _ = parse_options(read_options(tmp_path / "launched" / "config.toml"), ServiceSettings)
    assert simulate(federation).parameters_sha256 == launched["parameters_sha256"]


def test_launched_with_mixed_models(tmp_path: Path, quiet_environment: dict[str, str]) -> None:
    options = ["--nodes=2", "--rounds=12", "--model=mlp:8,mlp", "--merge-every=0", "--local-steps=2"]
    launched = run_json(command("launch", *options, "--json", f"--out={tmp_path}"), quiet_environment)
    federation, _ = parse_options(read_options(tmp_path / "config.toml"), ServiceSettings)
    simulated = simulate(federation).summary()
    assert (launched["parameters"], federation.model) == ([610, 4810], "mlp:8,mlp")
    for field in ("parameters_sha256", "parameters", "tail_by_model", "payload_bytes", "framed_bytes"):
        assert launched[field] == simulated[field], field


def interrupt(words: list[str], folder: Path, at: str, environment: dict[str, str]) -> list[int]:
    """Stop a launch as Ctrl-C does, when a file of this name is there. Returns its daemons."""
    process = subprocess.Popen(
        command("launch", *words), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: list(folder.glob(at)), "no checkpoint")
        daemons = daemons_of(folder)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert f"go on with: p2p-tally launch --resume {folder}" in stderr
    return daemons


def test_launched_with_joins_and_leaves(
    tmp_path: Path,
    quiet_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--nodes=4", "--join=node-0@9", "--leave=node-2@26", *OPTIONS[1:]]
    launched = run_json(command("launch", *options, "--json", f"--out={tmp_path / 'launched'}"), quiet_environment)
    arguments = ["simulate", *options, "--json", f"--out={tmp_path / 'simulated'}"]
    simulated = json.loads(in_process(arguments, monkeypatch, capsys)[1])
    for field in ("parameters_sha256", "accuracy", "tail_accuracy", "peak_accuracy", "payload_bytes", "framed_bytes"):
        assert launched[field] == simulated[field], field
    assert [found is None for found in launched["accuracy"]] == [False, False, True, False]
    there = [
        [found is not None for found in json.loads(line)["accuracy"]]
        for line in (tmp_path / "launched" / "rounds.jsonl").read_text().splitlines()
    ]
    assert (there[0], there[1], there[-1]) == ([False, *[True] * 3], [True] * 4, [True, True, False, True])


def test_interrupted_leaves_nothing_and_goes_on_to_the_same_bits(
    tmp_path: Path,
    quiet_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After a join and a leave, and before another join."""
    options = ["--nodes=4", "--rounds=200", "--local-steps=2", "--topology=ring", "--eval-every=7"]
    options += ["--join=node-0@9,node-3@150", "--leave=node-2@20"]
    folder = tmp_path / "stopped"
    words = [*options, "--checkpoint-every=10", f"--out={folder}"]
    daemons = interrupt(words, folder, "checkpoints/node-0/checkpoint-00000040.safetensors", quiet_environment)
    assert len(daemons) >= 3  # node-2 has left, and may have ended
    assert all(gone(pid) for pid in daemons)
    assert not list(folder.glob("*.pid"))
    resumed = run_json(command("launch", f"--resume={folder}", "--json"), quiet_environment)
    arguments = ["simulate", *options, "--json", f"--out={tmp_path / 'straight'}"]
    straight = json.loads(in_process(arguments, monkeypatch, capsys)[1])
    assert resumed["parameters_sha256"] == straight["parameters_sha256"]
    assert resumed["payload_bytes"] == straight["payload_bytes"]
    assert "going on after round" in (folder / "node-3.log").read_text()
    rounds = [json.loads(line)["round"] for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert rounds == sorted(set(rounds)) == [*range(7, 200, 7), 200]


def test_a_killed_launcher_takes_its_daemons_along(tmp_path: Path, quiet_environment: dict[str, str]) -> None:
    folder = tmp_path / "run"
    process = subprocess.Popen(
        command("launch", "--nodes=3", "--rounds=100000", "--eval-every=1001", f"--out={folder}"),
        env=quiet_environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: len(list(folder.glob("node-*.pid"))) == 3, "daemons did not start")
        daemons = daemons_of(folder)
        wait_until(lambda: all("link up" in path.read_text() for path in folder.glob("node-*.log")), "no links")
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: all(gone(pid) for pid in daemons), "a daemon outlived its launcher")


def test_a_node_that_dies_is_named_and_the_others_finish(tmp_path: Path, quiet_environment: dict[str, str]) -> None:
    folder = tmp_path / "run"
    process = subprocess.Popen(
        command("launch", *OPTIONS, "--rounds=400", f"--out={folder}"),
        env=quiet_environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_until(lambda: list(folder.glob("checkpoints/node-2/checkpoint-*")), "no checkpoint")
        os.kill(int((folder / "node-2.pid").read_text()), signal.SIGKILL)
        _, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "warning: node-2 was killed by signal 9; the others go on" in stderr
    assert "node-2 did not finish, the others did" in stderr.splitlines()[-1]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["accuracy"][2] is None
    assert all(summary["accuracy"][rank] > 50 for rank in (0, 1))


@pytest.mark.parametrize("options", [["--topology=mesh"], ["--nodes=4", "--topology=ring", "--hops=2"]])
def test_a_node_that_dies_before_it_begins_is_named_at_once_and_the_others_finish(
    options: list[str], tmp_path: Path, quiet_environment: dict[str, str]
) -> None:
    """Nobody will start it again: the others must not wait for it as for a peer that is not up yet."""
    folder = tmp_path / "run"
    process = subprocess.Popen(
        command("launch", *OPTIONS, *options, f"--out={folder}"),
        env=quiet_environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        pid = folder / "node-1.pid"
        wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"), "daemons did not start")
        os.kill(int(pid.read_text()), signal.SIGKILL)
        assert process.stderr is not None
        said = next(line for line in process.stderr if "node-1" in line)
        _, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
    assert "warning: node-1 was killed by signal 9; the others go on without it" in said
    assert process.returncode == 1
    assert "node-1 did not finish, the others did" in stderr.splitlines()[-1]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["accuracy"].pop(1) is None and None not in summary["accuracy"]
    # Nobody has waited a deadline for it either.
    logs = [path.read_text() for path in folder.glob("node-*.log")]
    assert not [line for log in logs for line in log.splitlines() if "in vain" in line or "no link" in line]


def test_a_node_that_fails_at_the_start_is_named_and_the_others_finish(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class NoSocket(LaunchPlan):
        """Gives node-1 a descriptor that is no socket: its standard input."""

        def arguments(self, rank: int, addresses: dict[NodeName, str], descriptor: int, *paths: str) -> list[str]:
            return super().arguments(rank, addresses, 0 if rank == 1 else descriptor, *paths)

    class OneFails(LocalDaemons):
        async def spawn(self, plan: LaunchPlan, launched: list[LaunchedNode]) -> None:
            await super().spawn(NoSocket(plan.names, plan.out, plan.resume_round), launched)

    settings = ServiceSettings(out=tmp_path / "run")
    with caplog.at_level(logging.WARNING), pytest.raises(LaunchFailed, match="node-1 did not finish, the others did"):
        launch(small(nodes=3, rounds=6), settings, where=OneFails())
    assert [record.message.split(":")[0] for record in caplog.records] == ["node-1 ended with code 1"]
    assert caplog.records[0].message.endswith("; the others go on without it")


def test_a_peer_that_never_comes_is_named(tmp_path: Path, quiet_environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        command("node", "--listen=127.0.0.1:0", "--peers=bob=127.0.0.1:9", "--name=alice", f"--out={tmp_path}"),
        env=quiet_environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "waiting for" in line)
    finally:
        process.terminate()
        stdout, _ = process.communicate(timeout=30)
    assert said.endswith("waiting for bob at 127.0.0.1:9 (Connection refused)\n")
    assert stdout == "alice: stopped after round 0; there is no checkpoint to go on from\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--resume=nowhere"], "--resume nowhere: no config.toml there; accepted is the folder of a stopped run"),
        (["--resume=nowhere", "--nodes=3"], "--nodes: --resume goes on with the run as it was; accepted beside it is"),
        (["--model=mlp,cnn"], "--model mlp,cnn: --method tally with --merge-every 50 averages parameters"),
        (["--nodes=7", "--topology=gossip", "--degree=3"], "gossip of 7: degree 3 is not possible; accepted: 2, 4, 6"),
        (["--merge-over=ring", "--topology=star"], "--merge-over ring: no ring of links through all 8 nodes"),
        (["--join=node-9@5"], "--join node-9@5: no node has this name; accepted are node-0, node-1, node-2, node-3"),
        (["--leave=node-1@400"], "--leave node-1@400: accepted is a round from 2 to the last, 300"),
        (["--barrier-timeout=-1"], "--barrier-timeout -1: accepted is a positive number of seconds, or auto"),
    ],
)
def test_bad_input_is_one_line(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = in_process(["launch", *options], monkeypatch, capsys)
    assert (code, len(err.splitlines())) == (2, 1)
    assert err.startswith(f"p2p-tally: {message}")
    assert not list(tmp_path.iterdir())  # no folder of a run that never was


PRINTS = """
import os
from torch import nn

def model(input_shape, classes):
    print("hello from my model, threads:", os.environ["OMP_NUM_THREADS"])
    os.write(1, b"and from its library\\n")
    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[0], classes))
"""


@pytest.mark.parametrize("how", ["launch", "simulate"])
def test_what_a_model_prints_is_not_taken_for_a_line_of_ours(
    how: str, tmp_path: Path, quiet_environment: dict[str, str]
) -> None:
    body = PRINTS if how == "launch" else PRINTS.replace("    os.write", "    # os.write")
    (tmp_path / "prints.py").write_text(body)
    options = [*OPTIONS, "--nodes=2", "--rounds=8", "--model=prints:model", "--json"]
    done = subprocess.run(
        command(how, *options, f"--out={tmp_path / 'out'}"),
        capture_output=True, text=True, env={**quiet_environment, "OMP_NUM_THREADS": "2"}, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["accuracy"]) == 2
    if how == "launch":
        assert "node-0 printed: and from its library" in done.stderr
        # Whatever the launcher has: a child has one thread.
        assert "hello from my model, threads: 1\n" in (tmp_path / "out/node-0.log").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="a limit on the size of files is Unix's")
def test_a_disk_that_is_full_stops_no_simulation_before_its_end(
    tmp_path: Path, quiet_environment: dict[str, str]
) -> None:
    """Files of at most 4 kB: config.toml fits, rounds.jsonl does not."""
    options = ["--nodes=3", "--rounds=60", "--method=local", "--eval-every=1", "--engine=exact", "--json"]
    arguments = command("simulate", *options, f"--out={tmp_path / 'out'}")
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 4; exec "$@"', "-", *arguments],
        capture_output=True, text=True, env=quiet_environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    path = tmp_path / "out/rounds.jsonl"
    assert f"{path} not written: File too large; tried again with every line" in done.stderr
    assert done.stderr.splitlines()[-1] == "p2p-tally: cannot write all files: File too large"
    assert all(json.loads(line)["round"] for line in path.read_text().splitlines())
