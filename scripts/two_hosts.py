"""Two hosts that found a federation by copying one line, and a third that joins while they play.

Each host is a network namespace with a home of its own, and nothing is copied between homes. Four commands start two
hosts: found, invite, node, join. The third needs two more: invite, join. All end with the same parameters.

    python scripts/two_hosts.py [--rounds 1500]

It needs root, and the command ip. The exit code is 1 if the parameters differ.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BRIDGE = "p2ptally0"
HOSTS = ("alice", "bob", "carol")


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def space(host: str) -> str:
    return f"p2p-tally-{host}"


def address(host: str) -> str:
    return f"10.77.0.{1 + HOSTS.index(host)}"


def make_network() -> None:
    """A namespace for each host, all on one bridge."""
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "link", "set", BRIDGE, "up")
    for host in HOSTS:
        outside, inside = f"pt-{host}", "eth0"
        run("ip", "netns", "add", space(host))
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", space(host))
        run("ip", "link", "set", outside, "master", BRIDGE, "up")
        run("ip", "-n", space(host), "addr", "add", f"{address(host)}/24", "dev", inside)
        run("ip", "-n", space(host), "link", "set", inside, "up")
        run("ip", "-n", space(host), "link", "set", "lo", "up")


def remove_network() -> None:
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", space(host)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", f"pt-{host}"], check=False, capture_output=True)
    subprocess.run(["ip", "link", "del", BRIDGE], check=False, capture_output=True)


class Host:
    """One machine: a namespace and a home."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.home = folder / name / "home"
        self._folder = folder / name
        self._folder.mkdir()
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", "P2P_TALLY_HOME": str(self.home)}

    def _words(self, *words: str) -> list[str]:
        print(f"{self.name}$ p2p-tally {' '.join(word if len(word) < 60 else word[:24] + '...' for word in words)}")
        home = ["--home", str(self.home)]
        return ["ip", "netns", "exec", space(self.name), sys.executable, "-m", "p2p_tally", *words, *home]

    def do(self, *words: str) -> str:
        done = subprocess.run(
            self._words(*words), cwd=self._folder, env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(done.stderr)
        return done.stdout.strip()

    def start(self, *words: str) -> "subprocess.Popen[str]":
        log = (self._folder / "log").open("w")
        return subprocess.Popen(
            self._words(*words), cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True
        )

    def log(self) -> str:
        return (self._folder / "log").read_text()

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + 120
        while text not in self.log():
            if time.monotonic() > until:
                sys.exit(f"{self.name} did not say {text!r}:\n{self.log()}")
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1500)
    rounds = parser.parse_args().rounds
    if os.geteuid() != 0:
        sys.exit("two_hosts.py: network namespaces need root")
    with tempfile.TemporaryDirectory() as folder:
        remove_network()
        make_network()
        try:
            sys.exit(play(Path(folder), rounds))
        finally:
            remove_network()


def play(folder: Path, rounds: int) -> int:
    alice, bob, carol = (Host(name, folder) for name in HOSTS)
    (folder / "alice" / "federation.toml").write_text(f"rounds = {rounds}\nmerge_every = 20\n")
    alice.do("found", "--name", "alice", "--listen", f"{address('alice')}:7001", "--config", "federation.toml")
    line = alice.do("invite", "bob")
    processes = [alice.start("node")]
    alice.wait_for("listening")
    processes.append(bob.start("join", line, "--listen", f"{address('bob')}:7001"))
    bob.wait_for("accuracy")
    print("two hosts play after four commands; now a third joins")
    processes.append(carol.start("join", alice.do("invite", "carol"), "--listen", f"{address('carol')}:7001"))
    ends = [process.communicate()[0] for process in processes]
    found = [re.search(r"finished (\d+) rounds, parameters (\w+)", end) for end in ends]
    for host, match in zip((alice, bob, carol), found, strict=True):
        print(f"{host.name}: {match[0] if match else 'not finished:' + host.log()[-2000:]}")
    joined = re.search(r"join of carol from round (\d+) on", alice.log())
    print(f"carol is a member from round {joined[1] if joined else '?'} on")
    same = all(found) and len({match[2] for match in found if match}) == 1
    print("all three end with the same parameters" if same else "the parameters differ")
    return 0 if same else 1


if __name__ == "__main__":
    main()
