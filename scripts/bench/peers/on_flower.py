"""The job on Flower: `flwr run` of flower_app, on its simulator or on a SuperLink with 8 SuperNodes.

simulator: as it is set up by default, two cores for each of its workers. simulator-tuned: one core for each worker, as
its manual advises, and the local SuperLink's state in memory. deployed: the commands of its manual; a SuperNode then
starts a process for each message that its ClientApp gets. No TLS, like everywhere in this bench.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from digits_job import NODES

APP = Path(__file__).parent / "flower_app"
CONFIG = f"""
[superlink]
default = "simulator"

[superlink.simulator]
address = ":local:"
options.num-supernodes = {NODES}

[superlink.simulator-tuned]
address = ":local-in-memory:"
options.num-supernodes = {NODES}
options.backend.client-resources.num-cpus = 1

[superlink.deployed]
address = "127.0.0.1:9093"
insecure = true
"""
APPS = 9100  # the first of the ports at which SuperNodes meet their ClientApps


def deploy(programs: Path) -> None:
    """They end with the namespace that this process runs in."""
    loopback = ["--serverappio-api-address=127.0.0.1:9091", "--fleet-api-address=127.0.0.1:9092"]
    subprocess.Popen(
        [programs / "flower-superlink", "--insecure", *loopback, "--control-api-address=127.0.0.1:9093"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for node in range(NODES):
        subprocess.Popen(
            [
                *(programs / "flower-supernode", "--insecure", "--superlink=127.0.0.1:9092"),
                f"--clientappio-api-address=127.0.0.1:{APPS + node}",
                *("--node-config", f"partition-id={node} num-partitions={NODES}"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["simulator", "simulator-tuned", "deployed"])
    parser.add_argument("--rounds", type=int, required=True)
    arguments = parser.parse_args()
    programs, home = Path(sys.executable).parent, Path("flwr").absolute()
    home.mkdir()
    (home / "config.toml").write_text(CONFIG, encoding="utf-8")
    os.environ |= {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parent),  # digits_job, for the processes that Flower starts
    }
    if arguments.kind == "deployed":
        deploy(programs)
    command = [programs / "flwr", "run", APP, arguments.kind, "--run-config", f"rounds={arguments.rounds}", "--stream"]
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
