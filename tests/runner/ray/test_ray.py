"""Sweeps and launches on a real Ray: a cluster of two workers on this machine, and the bits of the local engines."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import command, small, wait_until

from p2p_tally.config import NodeSettings, SimulationSettings
from p2p_tally.errors import ConfigError
from p2p_tally.runner.ray.cells import Mirror
from p2p_tally.runner.ray.cluster import QUIET, RayCluster, Resources
from p2p_tally.runner.ray.daemons import listening_hosts
from p2p_tally.runner.ray.remote_process import Output
from p2p_tally.runner.simulation.simulate import simulate

STORE = 80 << 20  # bytes of an object store, the least that Ray takes

MINE = """
title = "Mine"
[facts]
classes = 10
parameters = 4_810
[base]
nodes = 3
rounds = 6
warmup = 2
merge_every = 3
local_steps = 1
[[cells]]
name = "tally"
[[cells]]
name = "fedavg"
method = "fedavg"
[[cells]]
name = "broken"
probe_count = 1_000_000
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a head without CPUs and two workers with two each."""
    pytest.importorskip("ray", reason="the extra [ray] is not installed")
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # short: a socket's path has 107 characters at most
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**QUIET, "RAY_TMPDIR": folder}.items():
            patch.setenv(name, value)
        made = start_cluster()
        signal.signal(signal.SIGTERM, handler)  # Ray has put its own in the place of it
        yield str(made.address)
        made.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def start_cluster(tries: int = 3) -> Any:
    """Ray gives up on a process that is not there after 30 s, which happens on a machine that is busy with others."""
    from ray.cluster_utils import Cluster

    made = Cluster()
    try:
        made.add_node(num_cpus=0, include_dashboard=False, object_store_memory=STORE)
        for address in ("127.0.0.1", "127.0.0.2"):  # two machines, as far as Ray can tell
            made.add_node(num_cpus=2, object_store_memory=STORE, node_ip_address=address)
        return made
    except Exception:  # it is nothing more special
        made.shutdown()
        if tries == 1:
            raise
        return start_cluster(tries - 1)


def settings(out: Path) -> NodeSettings:
    return NodeSettings(out=out)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The record, without seconds."""
    lines = [json.loads(text) for text in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def test_cells_on_ray_are_those_of_a_simulation_here(
    cluster: str, tmp_path: Path, quiet_environment: dict[str, str]
) -> None:
    file, out = tmp_path / "mine.toml", tmp_path / "out"
    file.write_text(MINE)
    arguments = command("sweep", str(file), "--json", f"--out={out}", "--on=ray", f"--ray-address={cluster}")
    done = subprocess.run(arguments, capture_output=True, text=True, env=quiet_environment, check=False)
    assert done.returncode == 1, done.stderr
    assert "tally seed 0: done in" in done.stderr
    assert len(done.stderr.splitlines()) == 7  # nothing of Ray's own
    summary = json.loads(done.stdout)
    assert (summary["done"], summary["failed"]) == (2, 1)
    assert summary["failures"][0]["error"].startswith("--probe-count 1000000: accepted is")
    for cell in ("tally", "fedavg"):
        there, here = out / cell / "seed-0", tmp_path / cell
        run = simulate(small(nodes=3, rounds=6, merge_every=3, local_steps=1, batch=16, method=cell), settings(here))
        assert lines_of(here) == lines_of(there)
        found = json.loads((there / "summary.json").read_text())
        assert (found["parameters_sha256"], found["run"]) == (run.parameters_sha256, str(there))
        assert sorted(path.name for path in here.iterdir()) == sorted(path.name for path in there.iterdir())
        assert (here / "node-2.safetensors").read_bytes() == (there / "node-2.safetensors").read_bytes()


def test_an_interrupted_cell_on_ray_goes_on_to_the_same_bits(
    cluster: str, tmp_path: Path, quiet_environment: dict[str, str]
) -> None:
    file, out = tmp_path / "mine.toml", tmp_path / "out"
    file.write_text(MINE)
    arguments = ["sweep", str(file), "--cells=tally", "--set=rounds=300", "--set=eval-every=3", f"--out={out}"]
    arguments += ["--checkpoint-seconds=0.01", "--on=ray", f"--ray-address={cluster}"]
    process = subprocess.Popen(
        command(*arguments), env=quiet_environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    folder = out / "tally/seed-0"
    wait_until(lambda: list(folder.glob("checkpoints/*.safetensors")), "no checkpoint was brought back")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == "p2p-tally: stopped; the same command goes on with what is not finished"
    assert not (folder / "summary.json").exists()

    done = subprocess.run(command(*arguments), capture_output=True, text=True, env=quiet_environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "going on after round" in (out / "tally/seed-0.log").read_text()
    assert not (folder / "checkpoints").exists()
    options = {"nodes": 3, "rounds": 300, "merge_every": 3, "local_steps": 1, "batch": 16, "eval_every": 3}
    straight = simulate(small(**options), settings(tmp_path / "straight"))
    assert json.loads((folder / "summary.json").read_text())["parameters_sha256"] == straight.parameters_sha256
    assert lines_of(folder) == lines_of(tmp_path / "straight")


def daemon_process(name: str) -> psutil.Process | None:
    """A node's process: the cluster's machines are processes of this test."""
    for found in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if f"--name={name}" in found.cmdline():
                return found
    return None


LAUNCHED = ["--nodes=4", "--rounds=12", "--warmup=2", "--merge-every=4", "--local-steps=2", "--topology=ring"]


def test_nodes_launched_on_ray_are_spread_and_equal_simulated_ones(
    cluster: str, tmp_path: Path, quiet_environment: dict[str, str]
) -> None:
    out, on_ray = tmp_path / "launched", ["--on=ray", f"--ray-address={cluster}", "--json"]
    done = subprocess.run(
        command("launch", *LAUNCHED, f"--out={out}", *on_ray),
        capture_output=True, text=True, env=quiet_environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "round 12/12" in done.stderr
    launched = json.loads(done.stdout)
    run = simulate(small(rounds=12, topology="ring", batch=16))
    assert launched["parameters_sha256"] == run.parameters_sha256
    assert launched["framed_bytes"] == run.summary()["framed_bytes"]
    files = {path.name for path in out.iterdir()}
    assert files >= {"config.toml", "rounds.jsonl", "summary.json", "node-3.safetensors", "node-3.log", "checkpoints"}
    assert "link up" in (out / "node-0.log").read_text()
    assert len(list((out / "checkpoints/node-2").iterdir())) == 2


def test_a_launch_on_ray_is_stopped_and_goes_on(
    cluster: str, tmp_path: Path, quiet_environment: dict[str, str]
) -> None:
    out, on_ray = tmp_path / "stopped", ["--on=ray", f"--ray-address={cluster}", "--json"]
    options = [*LAUNCHED, "--nodes=2", "--rounds=200"]
    process = subprocess.Popen(
        command("launch", *options, "--eval-every=5", "--checkpoint-every=5", f"--out={out}", *on_ray),
        env=quiet_environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: len(list(out.glob("checkpoints/*/*.safetensors"))) >= 4, "no checkpoints were brought back")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == f"p2p-tally: stopped; go on with: p2p-tally launch --resume {out}"
    # Where it goes on does not matter: here without Ray.
    done = subprocess.run(
        command("launch", f"--resume={out}", "--json"),
        capture_output=True,
        text=True,
        env=quiet_environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = simulate(small(nodes=2, rounds=200, topology="ring", batch=16, eval_every=5))
    assert json.loads(done.stdout)["parameters_sha256"] == run.parameters_sha256


def test_a_node_whose_machine_is_lost_is_named_and_the_others_finish(
    cluster: str, tmp_path: Path, quiet_environment: dict[str, str]
) -> None:
    out = tmp_path / "run"
    options = [*LAUNCHED, "--nodes=3", "--rounds=200", "--eval-every=5"]
    process = subprocess.Popen(
        command("launch", *options, f"--out={out}", "--on=ray", f"--ray-address={cluster}"),
        env=quiet_environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    record = out / "rounds.jsonl"
    wait_until(lambda: record.is_file() and record.stat().st_size, "no round was played")
    node = daemon_process("node-2")
    assert node is not None
    [left] = [Path(word.removeprefix("--out=")).parent for word in node.cmdline() if word.startswith("--out=")]
    node.parent().kill()
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "node-2 did not finish, the others did: node-2 ended with code 1: lost: " in stderr.splitlines()[-1]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["accuracy"][2] is None and None not in summary["accuracy"][:2]
    node.wait(30)  # its parent pipe has closed
    shutil.rmtree(left)  # which a lost machine cannot


def test_a_node_that_dies_before_it_begins_is_not_waited_for(
    cluster: str, tmp_path: Path, quiet_environment: dict[str, str]
) -> None:
    options = [*LAUNCHED, "--nodes=3", f"--out={tmp_path / 'run'}"]
    process = subprocess.Popen(
        command("launch", *options, "--on=ray", f"--ray-address={cluster}"),
        env=quiet_environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: daemon_process("node-1"), "no node was started")
    node = daemon_process("node-1")
    assert node is not None
    node.kill()
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "warning: node-1 was killed by signal 9; the others go on without it" in stderr
    assert "node-1 did not finish, the others did" in stderr.splitlines()[-1]


def actors() -> list[psutil.Process]:
    """Those that hold peers of a simulation."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if " ".join(process.cmdline()).startswith("ray::Part"):
                found.append(process)
    return found


def test_peers_in_four_actors_on_two_machines_stop_lose_one_and_go_on_without_ray(
    cluster: str, tmp_path: Path, quiet_environment: dict[str, str]
) -> None:
    options = {"nodes": 70, "rounds": 200, "topology": "gossip", "merge_every": 7, "eval_every": 5, "batch": 16}
    straight = simulate(small(**options, robust_merge="off"), settings(tmp_path / "straight"), engine="stacked")
    out = tmp_path / "crowd"

    def started(*arguments: str) -> "subprocess.Popen[str]":
        on_ray = [f"--ray-address={cluster}", "--checkpoint-seconds=0.01"]
        process = subprocess.Popen(
            command("simulate", *arguments, *on_ray),
            env=quiet_environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        before = set(out.glob("checkpoints/*.safetensors"))
        wait_until(
            lambda: set(out.glob("checkpoints/*.safetensors")) - before or process.poll(), "no checkpoint was written"
        )
        return process

    flags = [f"--{key.replace('_', '-')}={value}" for key, value in {**options, "robust_merge": "off"}.items()]
    flags += ["--warmup=2", "--local-steps=2", "--engine=stacked"]
    process = started(*flags, "--workers=ray:4", f"--out={out}")
    assert len(actors()) == 4
    assert len({actor.ppid() for actor in actors()}) == 2  # the two machines
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == f"p2p-tally: stopped; go on with: p2p-tally simulate --resume {out}"
    wait_until(lambda: not actors(), "actors were left behind")

    process = started(f"--resume={out}", "--workers=ray:2")
    actors()[0].kill()
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "p2p-tally: --workers ray:2: the actor of node-" in stderr.splitlines()[-1]
    wait_until(lambda: not actors(), "actors were left behind")

    run = simulate(small(**options, robust_merge="off"), settings(out), engine="stacked", resume=True)
    assert run.parameters_sha256 == straight.parameters_sha256
    assert lines_of(out) == lines_of(tmp_path / "straight")


def test_nodes_of_several_machines_need_the_operators_word() -> None:
    several = ["10.0.0.1", "10.0.0.2", "10.0.0.1"]
    with pytest.raises(ConfigError, match="the nodes are on 2 machines, and nothing between them is encrypted"):
        listening_hosts(several, insecure=False)
    assert listening_hosts(several, insecure=True) == several
    assert listening_hosts(["10.0.0.1"] * 2, insecure=False) == ["127.0.0.1"] * 2


def test_a_mirror_cut_off_at_any_moment_can_be_gone_on_with(tmp_path: Path) -> None:
    def record() -> list[int]:
        return [json.loads(text)["round"] for text in (folder / "rounds.jsonl").read_text().splitlines()]

    folder = tmp_path / "run"
    mirror = Mirror(folder, tmp_path / "log")
    for round in range(1, 6):
        files = {f"run/checkpoints/checkpoint-{round:08d}.safetensors": b"%d" % round} if round < 5 else {}
        mirror.receive(Output(json.dumps({"round": round}), files))
    assert sorted(path.read_bytes() for path in (folder / "checkpoints").iterdir()) == [b"3", b"4"]
    assert mirror.contents().keys() == {
        "run/rounds.jsonl",
        "run/checkpoints/checkpoint-00000003.safetensors",
        "run/checkpoints/checkpoint-00000004.safetensors",
    }

    # Checkpoint 4 was damaged: the run went on after round 3.
    again = Mirror(folder, tmp_path / "log")
    again.receive(Output(json.dumps({"round": 4})))
    assert record() == [1, 2, 3, 4]
    again.receive(Output(json.dumps({"round": 5}), {"run/checkpoints/checkpoint-00000005.safetensors": b"5"}))
    assert record() == [1, 2, 3, 4, 5]
    again.receive(
        Output("", {"run/summary.json": b'{"run": "elsewhere"}', "run/rounds.jsonl": b'{"round": 9}\n', "log": b"x"}, 0)
    )
    assert record() == [9]
    assert json.loads((folder / "summary.json").read_text()) == {"run": str(folder)}
    assert not (folder / "checkpoints").exists()
    assert (tmp_path / "log").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--on=dask"], "--on dask: accepted is local or ray"),
        (["--on=ray", "--cpus-per-cell=1.5"], "--cpus-per-cell 1.5: accepted is a number from 0 to 1, or a whole"),
        (["--on=ray", "--gpus-per-cell=-1"], "--gpus-per-cell -1: accepted is a number from 0 to 1, or a whole"),
        (["--on=ray", "--ray-address=ray://x:1"], "--ray-address ray://x:1: accepted is local, auto, or"),
        (["--on=ray", "--ray-address=127.0.0.1:1"], "--ray-address 127.0.0.1:1: [Errno "),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from p2p_tally import cli

    result = CliRunner().invoke(cli.app, ["sweep", "default", f"--out={tmp_path}", *arguments])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith(message)


def test_without_ray_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r'--on ray: needs Ray; install it with: pip install "p2p-tally\[ray\]"'):
        RayCluster("local", Resources("cell")).__enter__()
    with pytest.raises(
        ConfigError, match=r'--workers ray:2: needs Ray; install it with: pip install "p2p-tally\[ray\]"'
    ):
        simulate(small(nodes=40), SimulationSettings(engine="stacked", workers="ray:2"))


def test_a_sweep_of_this_machine_never_loads_ray(quiet_environment: dict[str, str]) -> None:
    modules = ("experiments.sweep", "ray.cells", "ray.daemons", "launch.launcher")
    loaded = ", ".join(f"p2p_tally.runner.{module}" for module in modules)
    program = f"import sys, {loaded}; print('ray' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=quiet_environment
    )
    assert done.stdout == "False\n"
