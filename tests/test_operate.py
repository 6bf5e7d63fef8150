"""The files for operators: the unit, the image, the three containers, and the script that starts them."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from conftest import wait_until

from p2p_tally import cli
from p2p_tally.cli_environment import unknown_variables
from p2p_tally.config import DaemonSettings, Federation, parse_options, read_options

FOLDER = Path(__file__).parents[1] / "scripts" / "operate"
ENTRY = FOLDER / "entry"
UNIT = FOLDER / "p2p-tally@.service"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yml").read_text(encoding="utf-8"))
MEMBERS = ("alice", "bob", "carol")

# Does what the script needs of p2p-tally, and writes down how it was called.
STUB = """\
#!/bin/sh
echo "$@" >>"$P2P_TALLY_HOME/calls"
case $1 in
invite) [ "$2" = "$MEMBER" ] && exit 2; echo "line-for-$2" ;;
found) echo founded >"$P2P_TALLY_HOME/members.jsonl" ;;
join) [ -e "$REFUSE" ] && exit 2; echo joined >"$P2P_TALLY_HOME/members.jsonl" ;;
esac
"""


@pytest.fixture
def machines(tmp_path: Path) -> dict[str, dict[str, str]]:
    """The environments of three members: a home each, and one folder for invitations."""
    program = tmp_path / "bin" / "p2p-tally"
    program.parent.mkdir()
    program.write_text(STUB)
    program.chmod(0o755)
    (tmp_path / "invitations").mkdir()
    shared = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "INVITATIONS": str(tmp_path / "invitations"),
        "REFUSE": str(tmp_path / "refuse"),
    }
    for name in MEMBERS:
        (tmp_path / name).mkdir()
    return {name: {**shared, "P2P_TALLY_HOME": str(tmp_path / name)} for name in MEMBERS}


def start(machine: dict[str, str], words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen([str(ENTRY), *words], env=machine, text=True, stderr=subprocess.PIPE)


def run(machine: dict[str, str], words: list[str]) -> int:
    with start(machine, words) as process:
        process.communicate(timeout=60)
        return process.returncode


def calls(machine: dict[str, str]) -> list[str]:
    path = Path(machine["P2P_TALLY_HOME"]) / "calls"
    return path.read_text().splitlines() if path.exists() else []


def words_of(member: str) -> list[str]:
    return list(COMPOSE["services"][member]["command"])


def test_three_members_found_invite_and_join(machines: dict[str, dict[str, str]], tmp_path: Path) -> None:
    """bob comes first and waits; nobody has anything of another but the line that was for them."""
    with start(machines["bob"], words_of("bob")) as bob:
        assert bob.stderr is not None
        assert bob.stderr.readline() == f"entry: waiting for the invitation {tmp_path}/invitations/bob\n"
        assert run(machines["alice"], words_of("alice")) == 0
        assert bob.wait(timeout=60) == 0
    assert run(machines["carol"], words_of("carol")) == 0
    founding = "found --name alice --listen alice:7001 --config /data/federation.toml"
    assert calls(machines["alice"]) == [founding, "invite bob", "invite carol", "node"]
    assert calls(machines["bob"]) == ["join line-for-bob --listen bob:7001 --no-start", "node"]
    assert calls(machines["carol"]) == ["join line-for-carol --listen carol:7001 --no-start", "node"]
    assert list((tmp_path / "invitations").iterdir()) == []


def test_started_again_members_only_run(machines: dict[str, dict[str, str]]) -> None:
    for member in (*MEMBERS, *MEMBERS):
        assert run(machines[member], words_of(member)) == 0
    for member in MEMBERS:
        assert calls(machines[member]).count("node") == 2
        assert len(calls(machines[member])) == (5 if member == "alice" else 3)


def test_a_join_that_failed_is_tried_again_with_the_same_line(
    machines: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    assert run(machines["alice"], words_of("alice")) == 0
    (tmp_path / "refuse").touch()
    assert run(machines["bob"], words_of("bob")) == 2
    (tmp_path / "refuse").unlink()
    assert run(machines["bob"], words_of("bob")) == 0
    assert calls(machines["bob"])[-1] == "node"


def test_a_founder_that_died_between_two_invitations_goes_on(
    machines: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "alice" / "members.jsonl").touch()
    (tmp_path / "alice" / "invited-bob").touch()
    (tmp_path / "invitations" / "carol.part").write_text("line-f")
    assert run(machines["alice"], words_of("alice")) == 0
    assert calls(machines["alice"]) == ["invite carol", "node"]
    line = tmp_path / "invitations" / "carol"
    assert (line.read_text(), line.stat().st_mode & 0o777) == ("line-for-carol\n", 0o600)


def test_a_guest_that_cannot_be_invited_stops_nobody(machines: dict[str, dict[str, str]], tmp_path: Path) -> None:
    assert run({**machines["alice"], "MEMBER": "bob"}, words_of("alice")) == 0
    assert calls(machines["alice"])[-2:] == ["invite carol", "node"]
    assert not (tmp_path / "invitations" / "bob").exists()


def test_other_words_go_to_the_program(machines: dict[str, dict[str, str]]) -> None:
    assert run(machines["alice"], ["join", "LINE", "--dial-only"]) == 0
    assert calls(machines["alice"]) == ["join LINE --dial-only"]


def test_a_signal_reaches_the_node(machines: dict[str, dict[str, str]], tmp_path: Path) -> None:
    """The script gives its process to the node, so that the node is what a container stops."""
    program = tmp_path / "bin" / "p2p-tally"
    program.write_text('#!/bin/sh\necho $$ >"$P2P_TALLY_HOME/pid"\nexec sleep 60\n')
    (tmp_path / "alice" / "members.jsonl").touch()
    with start(machines["alice"], ["founder", "alice", "alice:7001", "x.toml"]) as process:
        wait_until((tmp_path / "alice" / "pid").exists, "the node was not started")
        wait_until((tmp_path / "alice" / "pid").read_text, "the node did not say its number")
        assert int((tmp_path / "alice" / "pid").read_text()) == process.pid
        process.terminate()
        assert process.wait(timeout=60) == -15


def test_the_members_share_invitations_and_nothing_else() -> None:
    written = {
        name: {
            volume.partition(":")[0] for volume in COMPOSE["services"][name]["volumes"] if not volume.endswith(":ro")
        }
        for name in MEMBERS
    }
    assert written == {name: {name, "invitations"} for name in MEMBERS}
    assert set(COMPOSE["volumes"]) == {*MEMBERS, "data", "invitations"}
    assert COMPOSE["services"]["bob"]["depends_on"] == {"alice": {"condition": "service_healthy"}}


def test_the_example_has_data_for_every_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["digits.py", str(tmp_path)])
    runpy.run_path(str(FOLDER / "digits.py"), run_name="__main__")
    parse_options(read_options(tmp_path / "federation.toml"), DaemonSettings)
    assert tomllib.loads((tmp_path / "federation.toml").read_text())["probes"] == f"npz:{tmp_path}/probes.npz"
    for name in MEMBERS:
        source = COMPOSE["services"][name]["environment"]["P2P_TALLY_DATA"]
        assert (tmp_path / Path(source.removeprefix("npz:")).name).is_file()
        assert Federation.parse({"data": source}).data == f"npz:/data/{name}.npz"


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_every_variable_of_these_files_is_known(path: Path) -> None:
    named = re.findall(r"\bP2P_TALLY_[A-Z_]+", path.read_text(encoding="utf-8"))
    assert list(unknown_variables(typer.main.get_command(cli.app), dict.fromkeys(named, "x"))) == []


def test_the_image_has_the_files_that_it_is_built_from() -> None:
    root = FOLDER.parents[1]
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (?!--)(.*)$", text, re.M) for word in line.split()[:-1]]
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    assert copied and all((root / path).exists() for path in copied)
    assert {f"!{path}" for path in copied} == {line for line in ignored if line.startswith("!")}
    assert text.count("ARG BASE=") == 1 and "FROM ${BASE}" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_the_unit_is_sound_and_hardened(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8")
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace("/opt/p2p-tally/bin/p2p-tally", shutil.which("true") or ""), encoding="utf-8")
    for words in (["verify"], ["security", "--offline=true", "--threshold=20"]):  # 2.0 of 10
        done = subprocess.run(
            ["systemd-analyze", *words, str(unit)], check=False, capture_output=True, text=True, timeout=60
        )
        if "Unknown option" in done.stderr or "unrecognized option" in done.stderr:
            pytest.skip("this systemd-analyze is too old")
        assert (done.returncode, done.stderr) == (0, ""), done.stdout[-400:]
