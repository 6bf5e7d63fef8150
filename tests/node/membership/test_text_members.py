"""A federation of texts: the tokenizer travels with the probes, so that all write their own texts with it."""

from pathlib import Path

import numpy as np
import pytest
from homes import found, invitation, join, plays, running

from p2p_tally.config import Federation
from p2p_tally.errors import DataError
from p2p_tally.learning.data.token_probes import tokenizer_of
from p2p_tally.learning.setup import prepare
from p2p_tally.node.membership.home import Home

pytest.importorskip("tokenizers")

WORDS = {"alice": "the queen of hearts made tarts ", "bob": "a sailor went to sea to see what he could see "}
TEXT = {"vocabulary": 260, "context": 8, "model": "tinygpt", "probe_count": 4, "probes_per_round": 2}


def text(folder: Path, name: str) -> str:
    """Different words at each member: a tokenizer that is trained on them would differ, too."""
    path = folder / f"{name}.txt"
    path.write_text("\n".join(f"{number} {WORDS[name]}" for number in range(200)))
    return f"text:{path}"


async def test_two_members_with_texts_of_their_own(tmp_path: Path) -> None:
    alice = found(tmp_path / "alice", data=text(tmp_path, "alice"), **TEXT)
    alice.save_own({**alice.own_options(), "data": text(tmp_path, "alice")})
    async with running() as nodes:
        await nodes.start(alice)
        bob = await join(tmp_path / "bob", invitation(alice, "bob"), data=text(tmp_path, "bob"))
        assert bob.probes() == alice.probes()
        daemons = [nodes.daemons["alice"], await nodes.start(bob)]
        await plays(daemons[1], 6)
    tokenizers = {daemon.task.tokenizer.read_bytes() for daemon in daemons if daemon.task.tokenizer is not None}
    assert len(tokenizers) == 1
    assert daemons[0].task.probes.digest() == daemons[1].task.probes.digest()


def test_probes_and_tokenizer_of_the_founder_come_back_as_they_were(tmp_path: Path) -> None:
    data = text(tmp_path, "alice")
    home = found(tmp_path / "alice", data=data, **TEXT)
    federation = home_federation(home, data)
    task = prepare(federation)
    founder = prepare(federation.model_copy(update={"probes": "holdout", "probe_count": 4, "partition": "iid"}))
    assert task.probes.digest() == founder.probes.digest()
    assert task.tokenizer is not None and founder.tokenizer is not None
    assert task.tokenizer.read_bytes() == founder.tokenizer.read_bytes()


def home_federation(home: Home, data: str) -> Federation:
    values = home.shared_options(home.chain().members)
    return Federation.parse({**values, "data": data, "nodes": 1, "partition": "iid"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"windows": np.zeros((2, 4), np.uint16)}, "windows of 3 tokens; --context is 8"),
        ({"windows": np.full((2, 9), 999, np.uint16)}, "token 999; the vocabulary has 260"),
        ({"windows": np.zeros((2, 9))}, "accepted are tokens"),
        ({"tokenizer": np.frombuffer(b"{}", np.uint8)}, "its tokenizer cannot be read"),
        ({"tokenizer": np.frombuffer(b"\xff", np.uint8)}, "no UTF-8 text"),
    ],
)
def test_a_file_that_is_none_is_one_line(change: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    data = text(tmp_path, "alice")
    home = found(tmp_path / "alice", data=data, **TEXT)
    with np.load(home.folder / "probes.npz") as archive:
        arrays = {name: archive[name] for name in archive.files} | change
    np.savez(tmp_path / "other.npz", **arrays)
    federation = home_federation(home, data).model_copy(update={"probes": f"tokens:{tmp_path / 'other.npz'}"})
    with pytest.raises(DataError, match=message):
        prepare(federation)


def test_probes_of_a_text_are_for_texts(tmp_path: Path) -> None:
    home = found(tmp_path / "alice", data=text(tmp_path, "alice"), **TEXT)
    with pytest.raises(DataError, match="probes of a text; accepted with --data wikitext2 or text:FILE"):
        prepare(home_federation(home, "digits"))
    assert tokenizer_of("holdout") is None and tokenizer_of("npz:probes.npz") is None
