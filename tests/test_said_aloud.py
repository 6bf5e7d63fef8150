"""Options that would change nothing, and hosts that differ: nothing of that passes in silence."""

import logging
import sys
from pathlib import Path

import pytest
from conftest import open_listener, run_all, small

from p2p_tally import cli
from p2p_tally.config import DaemonSettings, Federation
from p2p_tally.learning.schedule import resolve
from p2p_tally.node.service.daemon import Daemon
from p2p_tally.protocol.handshake import fields_digest, told_differences


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"warmup": 500, "rounds": 10}, ["--warmup 500: the channel never opens in 10 rounds"]),
        ({"warmup": 10, "rounds": 10}, ["--warmup 10: the channel never opens in 10 rounds"]),
        ({"warmup": 9, "rounds": 10}, []),
        ({"warmup": 500, "rounds": 10, "method": "fedavg"}, []),  # which opens no channel
        ({"mu": 0.1}, ["--mu 0.1: the method tally does not read it; ignored"]),
        ({"mu": 0.1, "method": "fedprox"}, []),
        ({"mu": 0.001}, []),  # the default, as a run's own config.toml has it
        ({"top_k": 5, "method": "fedmd"}, ["--top-k 5: the method fedmd does not read it; ignored"]),
        ({"top_k": 5, "method": "rcfd"}, []),
        ({"outer_lr": 0.5}, ["--outer-lr 0.5: the method tally does not read it; ignored"]),
        ({"outer_lr": 0.5, "outer_momentum": 0.5, "method": "diloco"}, []),
        ({"rho": 0.1, "method": "gflat"}, []),
        ({"partners": 2, "method": "dpfl"}, []),
        ({"mutual_cycle": 4, "method": "dfml"}, []),
        ({"mutual_cycle": 4, "mentor": "mlp:9"}, ["--mutual-cycle 4: the method tally does", "--mentor mlp:9: the"]),
        ({"mentor": "mlp:9", "method": "fedkd"}, []),
        ({"partners": 2, "method": "pame"}, ["--partners 2: the method pame does not read it; ignored"]),
        ({"rho": 0.1}, ["--rho 0.1: the method tally does not read it; ignored"]),
        ({"links_used": 0.1, "steps_taken": 0.1, "method": "spod-gt"}, []),
        ({"coordinates_sent": 0.2, "links_used": 0.1, "method": "pame"}, []),
        ({"coordinates_sent": 0.2, "method": "dspodfl"}, ["--coordinates-sent 0.2: the method dspodfl does not"]),
        ({"disagreement_weight": 0.5, "inverse_agreement": 0.5}, []),
        (
            {"disagreement_weight": 0.5, "inverse_agreement": 0.5, "method": "fedmd"},
            ["--disagreement-weight 0.5: the method fedmd does", "--inverse-agreement 0.5: the method fedmd does"],
        ),
    ],
)
def test_an_option_that_changes_nothing_is_said(
    options: dict[str, object], said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    resolve(Federation.parse(options), labelled=True)
    assert len(caplog.messages) == len(said)
    for message, begin in zip(caplog.messages, said, strict=True):
        assert message.startswith(begin)


def call(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["p2p-tally", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


@pytest.mark.parametrize("command", ["simulate", "launch", "node"])
def test_a_second_file_of_options_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.toml", "b.toml"):
        Path(name).write_text("rounds = 1\n")
    assert call([command, "--config", "a.toml", "--config=b.toml"], monkeypatch) == 2
    assert capsys.readouterr().err == "p2p-tally: --config b.toml: a second file, after a.toml; accepted is one\n"


def test_a_node_without_peers_says_that_it_learns_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = ["node", "--listen=127.0.0.1:0", "--rounds=1", "--local-steps=1", f"--out={tmp_path / 'solo'}"]
    handlers = list(logging.getLogger().handlers)
    try:
        assert call(arguments, monkeypatch) == 0
    finally:
        logging.getLogger().handlers[:] = handlers
    assert "--peers: none given, so this node learns alone" in caplog.messages


def test_what_is_told_is_no_part_of_the_digest() -> None:
    here, there = (
        (("rounds", "9"), ("lr", "0.001"), ("batch", "16")),
        (("rounds", "9"), ("lr", "0.01"), ("batch", "16")),
    )
    assert fields_digest(here) == fields_digest(there)
    assert told_differences(here, there) == ["lr is 0.001 here, 0.01 there"]
    assert told_differences(here, (("rounds", "9"),)) == []  # one that does not tell


async def test_both_ends_say_that_their_step_sizes_differ(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    listeners = {name: open_listener() for name in ("alice", "bob")}
    addresses = {name: f"127.0.0.1:{listener.getsockname()[1]}" for name, listener in listeners.items()}
    daemons = []
    for rank, (name, peer, lr) in enumerate([("alice", "bob", 0.001), ("bob", "alice", 0.05)]):
        values = {"name": name, "rank": rank, "listen": addresses[name], "peers": f"{peer}={addresses[peer]}"}
        settings = DaemonSettings.parse({**values, "out": tmp_path / name, "device": "cpu"})
        federation = small(nodes=2, rounds=3, warmup=0, lr=lr)
        daemons.append(Daemon(federation, settings, membership=False, inherited=listeners[name]))
    with caplog.at_level(logging.WARNING):
        results = await run_all(daemons)
    assert [result["finished"] for result in results] == [True, True]
    said = {
        (record.__dict__["peer"], record.getMessage()) for record in caplog.records if "lr is" in record.getMessage()
    }
    assert said == {
        ("bob", "lr is 0.001 here, 0.05 there: the two learn differently"),
        ("alice", "lr is 0.05 here, 0.001 there: the two learn differently"),
    }
