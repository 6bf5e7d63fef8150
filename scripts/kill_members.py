"""kill -9 of members while a federation is founded, joined, changed: real processes, at each point of points.py.

A process kills itself with SIGKILL at an exact point: before or after a file is written, before a message is sent. Then
the same command is run again on that one machine, and nothing is done on any other. Wanted each time: all members that
run come to the same list, each with the key that the list names; they have a link, and play on. A founder that is lost
for good has its place taken by the successor, who lets somebody in.

    python scripts/kill_members.py [--state kill_members.json] [--only rotate] [--again]

The state file says which cases have passed: started again, it goes on with the others. About 15 minutes on two cores.
The exit code is 1 if a case fails.
"""

import argparse
import json
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

from p2p_tally import cli
from p2p_tally.ids import NodeName
from p2p_tally.learning.learner import Learner
from p2p_tally.node.membership import points
from p2p_tally.node.membership.founding import found_federation  # noqa: F401 - imported before processes are forked
from p2p_tally.node.membership.home import Home
from p2p_tally.node.service.member import MemberDaemon  # noqa: F401 - the same

REST_SECONDS = 0.2
SECONDS = 180.0  # for anything that must happen, on a busy machine
FILES = ("identity.pem", "probes.npz", "federation.toml", "node.toml", "members.jsonl")
FOUNDING = [f"{when} {file}" for file in FILES for when in ("before", "after")]
LIST = ["before members.jsonl", "after members.jsonl"]
REQUEST = ["before request", "after request"]
OUTCOME = ["before outcome", "after outcome"]
ROTATE = ["before identity-next.pem", "after identity-next.pem", *LIST, "before identity.pem", "after identity.pem"]

# By change and by who dies: a daemon, the person's command at it, or a newcomer. Lists and files differ by who it is.
CASES: dict[tuple[str, str], list[str]] = {
    ("join", "alice"): ["before invitation", "after invitation", *LIST, "sending list", "sending admitted"],
    ("join", "bob"): LIST,
    ("remove", "command"): REQUEST,
    ("remove", "alice"): [*LIST, "sending list", *OUTCOME],
    ("remove", "bob"): LIST,
    ("rotate", "command"): REQUEST,
    ("rotate", "bob"): [*ROTATE, "sending request", *OUTCOME],
    ("rotate", "alice"): [*ROTATE, "sending list", *OUTCOME],
    ("catch-up", "alice"): ["sending catch-up", *LIST],
    ("catch-up", "bob"): ["sending catch-up", *LIST],
    ("leave", "command"): REQUEST,
    ("leave", "bob"): ["sending request", *LIST],
    ("leave", "alice"): [*LIST, "sending list"],
    ("take-over", "command"): REQUEST,
    ("take-over", "bob"): [*LIST, *OUTCOME],
    ("invite", "command"): ["before invitation", "after invitation"],
    ("join", "newcomer"): ["sending join", *FOUNDING],
    ("found", "command"): FOUNDING,
}


class Failed(Exception):
    """A case does not hold."""


class Member:
    """p2p-tally as a process of its own, which dies at the point that a file names; once, for the file goes first.

    It is forked from this process, which has imported everything: starting a Python for each takes ten times as long.
    """

    def __init__(self, arguments: list[str], aim: Path, out: Path, err: Path) -> None:
        self.arguments = arguments
        self.returncode: int | None = None
        self._out, self._err = out, err
        sys.stdout.flush()
        self._pid = os.fork()
        if not self._pid:
            self._run(arguments, aim, out, err)

    @staticmethod
    def _run(arguments: list[str], aim: Path, out: Path, err: Path) -> NoReturn:
        code = 1
        try:
            for number, file in ((1, out), (2, err)):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
            as_member(arguments, aim)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def communicate(self) -> tuple[str, str]:
        """When it has ended: what it printed."""
        wait_until(lambda: self.poll() is not None, f"{self.arguments[:2]} ends")
        return self._out.read_text(), self._err.read_text()

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self._pid, signal.SIGKILL)
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def as_member(arguments: list[str], aim: Path) -> None:
    def die(point: str) -> None:
        assert point in points.POINTS, point
        if aim.exists() and aim.read_text() == point:
            aim.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    train = Learner.train

    def slow_train(self: Learner) -> None:  # endless rounds of a tiny model would leave no processor to the others
        time.sleep(REST_SECONDS)
        train(self)

    setattr(points, "at", die)  # noqa: B010 - for this process only
    setattr(Learner, "train", slow_train)  # noqa: B010 - for this process only
    sys.argv = ["p2p-tally", *arguments]
    cli.main()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > until:
            raise Failed(f"{what}: not within {SECONDS:.0f} s")
        time.sleep(0.1)


class Machine:
    """A home, the daemon in it, and the person who gives commands there."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        folder.mkdir(parents=True)
        self.home = Home(folder / "home")
        with socket.socket() as one, socket.socket() as other:
            for found in (one, other):
                found.bind(("127.0.0.1", 0))
            self.port, self.admin = (int(found.getsockname()[1]) for found in (one, other))
        self._daemon: Member | None = None
        self._commands = 0

    # --- processes

    def _start(self, words: list[str], aim: str, out: Path, err: Path) -> Member:
        file = self.folder / f"aim-{'node' if words[0] == 'node' else 'command'}"
        if aim:
            file.write_text(aim)
        return Member([*words, "--home", str(self.home.folder)], file, out, err)

    def command(self, *words: str, aim: str = "") -> Member:
        self._commands += 1
        out, err = (self.folder / f"{kind}-{self._commands}" for kind in ("out", "err"))
        return self._start(list(words), aim, out, err)

    def do(self, *words: str) -> str:
        """A command that succeeds."""
        return self.finished(self.command(*words))

    def finished(self, process: Member) -> str:
        out, err = process.communicate()
        if process.returncode:
            raise Failed(f"{self.name}: {process.arguments} ended with {process.returncode}: {err[-600:]}")
        return out.strip()

    def killed(self, *words: str, aim: str) -> None:
        """A command that dies."""
        process = self.command(*words, aim=aim)
        _, err = process.communicate()
        if process.returncode != -signal.SIGKILL:
            raise Failed(f"{self.name}: {words[0]} did not reach {aim!r}: code {process.returncode}, {err[-600:]}")

    def start(self, aim: str = "", *, wait: bool = True) -> None:
        """The daemon; returns when it answers."""
        self._daemon = self._start(["node"], aim, self.folder / "end", self.folder / "log")
        if wait:
            wait_until(lambda: self.status() is not None or not self.runs, f"{self.name} answers")
            if self._daemon.poll():  # code 0: it has found in its list that it is no member any more
                raise Failed(f"{self.name} did not start: {self.log()}")

    def log(self) -> str:
        return (self.folder / "log").read_text()[-1500:]

    def aim(self, point: str) -> None:
        """Its daemon dies there."""
        (self.folder / "aim-node").write_text(point)

    def dies(self) -> None:
        assert self._daemon is not None
        wait_until(lambda: not self.runs, f"{self.name} reaches the point")
        if self._daemon.returncode != -signal.SIGKILL:
            raise Failed(f"{self.name} ended with {self._daemon.returncode}: {self.log()}")

    @property
    def runs(self) -> bool:
        return self._daemon is not None and self._daemon.poll() is None

    def kill(self) -> None:
        if self._daemon is not None:
            self._daemon.kill()

    # --- what it knows

    def status(self) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/status", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError):
            return None

    @property
    def round(self) -> int:
        return int((self.status() or {"round": -1})["round"])

    def is_linked_to(self, peer: str) -> bool:
        links = (self.status() or {}).get("links", {})
        return links.get(peer, {}).get("state") == "up"

    @property
    def number(self) -> int:
        return self.home.chain().members.number

    @property
    def own(self) -> list[str]:
        """Options of the node itself."""
        where = ["--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}", "--device", "cpu"]
        return [*where, "--alone", "--checkpoint-every", "200", "--eval-every", "99"]


class Crowd:
    """Alice, who founds, and bob; and newcomers, who do not run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self.alice, self.bob = self.machine("alice"), self.machine("bob")

    def machine(self, name: str) -> Machine:
        self._count += 1
        return Machine(name, self._folder / f"{name}-{self._count}")

    def found(self) -> list[str]:
        shared = ["--rounds", "1000000", "--warmup", "2", "--merge-every", "4", "--local-steps", "1", "--batch", "8"]
        return ["found", "--name", "alice", *shared, *self.alice.own]

    def start(self, *, both: bool = True) -> None:
        self.alice.do(*self.found())
        self.alice.start()
        if both:
            self.bring_bob()

    def bring_bob(self) -> None:
        self.bob.kill()
        self.bob = self.machine("bob")
        self.enter(self.bob)
        self.bob.start()
        self.together()

    def enter(self, newcomer: Machine, via: Machine | None = None) -> None:
        line = (via or self.alice).do("invite", newcomer.name)
        newcomer.do("join", line, "--no-start", *newcomer.own)

    def newcomer(self) -> Machine:
        return self.machine(f"dave{self._count}")

    def end(self) -> None:
        for machine in (self.alice, self.bob):
            machine.kill()

    def together(self, number: int = 0) -> None:
        """Both have one list, of at least so many changes, the keys that it names, a link; and they play."""
        both = (self.alice, self.bob)

        def agree() -> bool:
            chains = [machine.home.chain() for machine in both]
            return chains[0] == chains[1] and chains[0].members.number >= number

        wait_until(agree, f"the lists agree, with change {number} at least")
        wait_until(self._keys_fit, "the keys are those that the list names")
        wait_until(lambda: self.alice.is_linked_to("bob") and self.bob.is_linked_to("alice"), "a link")
        before = [machine.round for machine in both]
        grown = lambda: all(machine.round > round for machine, round in zip(both, before, strict=True))  # noqa: E731
        wait_until(grown, f"both play on, after rounds {before}")

    def _keys_fit(self) -> bool:
        members = self.alice.home.chain().members
        both = ((machine.name, machine.home.identity().credential.key) for machine in (self.alice, self.bob))
        return all(members.owner(key) == name for name, key in both)


# --- one function for each change: the case that dies at a point


def case_found(crowd: Crowd, _who: str, point: str) -> None:
    alice = crowd.alice
    alice.killed(*crowd.found(), aim=point)
    if not alice.home.has_federation:
        alice.do(*crowd.found())
    members = alice.home.chain().members
    alice.home.shared_options(members)
    if members.owner(alice.home.identity().credential.key) != "alice":
        raise Failed("the list names another key")


def case_invite(crowd: Crowd, _who: str, point: str) -> None:
    newcomer = crowd.newcomer()
    crowd.alice.killed("invite", newcomer.name, aim=point)
    crowd.enter(newcomer)
    if newcomer.home.chain() != crowd.alice.home.chain():
        raise Failed("the newcomer's list is another")


def case_join(crowd: Crowd, who: str, point: str) -> None:
    newcomer, number = crowd.newcomer(), crowd.alice.number + 1
    line = crowd.alice.do("invite", newcomer.name)
    words = ["join", line, "--no-start", *newcomer.own]
    if who == "newcomer":
        newcomer.killed(*words, aim=point)
        newcomer.do(*words)
    else:
        victim = getattr(crowd, who)
        victim.aim(point)
        process = newcomer.command(*words)
        victim.dies()
        victim.start()
        process.communicate()
        if process.returncode:
            newcomer.do(*words)  # it was cut off: the person runs the same command again
    crowd.together(number)
    if newcomer.home.chain() != crowd.alice.home.chain():
        raise Failed("the newcomer's list is another")


def by_request(crowd: Crowd, who: str, point: str, asker: Machine, *words: str, number: int) -> None:
    """A command that leaves a request: it dies itself, or a daemon does."""
    if who == "command":
        asker.killed(*words, aim=point)
        asker.command(*words).communicate()  # it may say that there is nothing left to do
    else:
        victim: Machine = getattr(crowd, who)
        victim.aim(point)
        process = asker.command(*words)
        victim.dies()
        if NodeName(victim.name) in victim.home.chain().members.current:
            victim.start()
        process.communicate()
    wait_until(lambda: crowd.alice.number >= number, f"change {number}")


def case_remove(crowd: Crowd, who: str, point: str) -> None:
    newcomer = crowd.newcomer()
    crowd.enter(newcomer)
    crowd.together()
    number = crowd.alice.number + 1
    by_request(crowd, who, point, crowd.alice, "remove", newcomer.name, number=number)
    crowd.together(number)


def case_rotate(crowd: Crowd, who: str, point: str) -> None:
    asker = crowd.alice if who == "alice" else crowd.bob
    number = crowd.alice.number + 1
    by_request(crowd, who, point, asker, "identity", "rotate", number=number)
    crowd.together(number)


def case_catch_up(crowd: Crowd, who: str, point: str) -> None:
    """Alice gets another key while bob is away: he knows her by the old one, so no link can be made."""
    crowd.bob.kill()
    crowd.alice.do("identity", "rotate")
    number = crowd.alice.number
    if who == "alice":
        if point != "sending catch-up":  # the list changes once more, just before bob is back
            crowd.alice.aim(point)
            process = crowd.alice.command("identity", "rotate")
            crowd.bob.start(wait=False)
            crowd.alice.dies()
            crowd.alice.start()
            process.communicate()
            number += 1
        else:
            crowd.alice.aim(point)
            crowd.bob.start(wait=False)
            crowd.alice.dies()
            crowd.alice.start()
    else:
        crowd.bob.start(point, wait=False)
        crowd.bob.dies()
        crowd.bob.start()
    crowd.together(number)


def case_leave(crowd: Crowd, who: str, point: str) -> None:
    number = crowd.alice.number + 1
    if who == "command":
        crowd.bob.killed("leave", aim=point)
        if crowd.bob.runs:  # unless the request was there already, and he has left
            process = crowd.bob.command("leave")
            process.communicate()
    else:
        by_request(crowd, who, point, crowd.bob, "leave", number=number)
    wait_until(lambda: NodeName("bob") not in crowd.alice.home.chain().members.current, "bob has left")
    wait_until(lambda: not crowd.bob.runs, "bob's node ends")
    crowd.bring_bob()


def case_take_over(crowd: Crowd, who: str, point: str) -> None:
    """The founder is lost for good; the successor takes over, and lets somebody in."""
    crowd.alice.do("successor", "bob")
    crowd.together(crowd.alice.number)
    crowd.alice.kill()
    bob, number = crowd.bob, crowd.bob.number + 1
    if who == "command":
        bob.killed("take-over", aim=point)
        process = bob.command("take-over")
    else:
        bob.aim(point)
        process = bob.command("take-over")
        bob.dies()
        bob.start()
    process.communicate()
    wait_until(lambda: bob.home.chain().members.orderer == "bob", "bob orders changes")
    carol = crowd.machine("carol")
    crowd.enter(carol, via=bob)
    before = bob.round
    wait_until(lambda: bob.round > before and bob.number >= number + 1, "bob plays on")


RUN = {
    "found": case_found,
    "invite": case_invite,
    "join": case_join,
    "remove": case_remove,
    "rotate": case_rotate,
    "catch-up": case_catch_up,
    "leave": case_leave,
    "take-over": case_take_over,
}
# These spoil a federation for the cases after them.
ALONE = ("found", "take-over")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path, default=Path("kill_members.json"), help="which cases have passed")
    parser.add_argument("--only", choices=RUN, help="the cases of one change")
    parser.add_argument("--again", action="store_true", help="forget which cases have passed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    passed: list[str] = [] if options.again or not options.state.exists() else json.loads(options.state.read_text())
    failed: list[str] = []
    for (change, who), aims in CASES.items():
        if options.only in (None, change):
            todo = [point for point in aims if f"{change} {who} {point}" not in passed]
            run_group(change, who, todo, passed, failed, options.state)
    every = sum(map(len, CASES.values()))
    print(f"{len(passed)} of {every} cases passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


def run_group(change: str, who: str, todo: list[str], passed: list[str], failed: list[str], state: Path) -> None:
    """The cases of one change and one victim, in one federation as long as nothing fails."""
    crowd: Crowd | None = None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            for count, point in enumerate(todo):
                case, began = f"{change} {who} {point}", time.monotonic()
                try:
                    if crowd is None:
                        crowd = Crowd(Path(folder) / str(count))
                        if change != "found":
                            crowd.start()
                    RUN[change](crowd, who, point)
                except Failed as error:
                    print(f"FAILED  {case}: {error}\n{last_words(Path(folder) / str(count))}", flush=True)
                    failed.append(case)
                else:
                    print(f"passed  {case} ({time.monotonic() - began:.0f} s)", flush=True)
                    passed.append(case)
                    state.write_text(json.dumps(passed, indent=1))
                    if change not in ALONE:
                        continue
                if crowd is not None:
                    crowd.end()
                crowd = None
        finally:
            if crowd is not None:
                crowd.end()


def last_words(folder: Path) -> str:
    """What the processes of a case said last, the newest first."""
    files = sorted(folder.glob("*/[el][ro]*"), key=lambda file: -file.stat().st_mtime)
    return "\n".join(f"  {file.parent.name}/{file.name}: {file.read_text()[-700:]}" for file in files[:5])


if __name__ == "__main__":
    main()
