"""Probes as pictures or text."""

from pathlib import Path

import pytest
import torch

from p2p_tally.learning.data.tokenizer import Tokenizer
from p2p_tally.node.page.views import decoder, probe_views
from p2p_tally.page.votes import SHOWN


def test_images_become_pictures() -> None:
    views = probe_views(torch.rand(40, 3, 32, 32), 1)
    assert len(views) == SHOWN
    assert all(view is not None and view["channels"] == 3 for view in views)


def test_of_a_text_what_stands_before_the_position_is_shown() -> None:
    tokens = torch.tensor([[10, 11, 12, 13], [20, 21, 22, 23]])
    assert probe_views(tokens, 4)[:2] == [{"text": "10"}, {"text": "10 11"}]
    assert probe_views(tokens, 4, lambda ids: "".join(chr(55 + one) for one in ids))[3] == {"text": "ABCD"}


def test_tokens_are_written_with_the_tokenizer_of_the_task(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    text = "the votes of the peers are counted, and the peers learn from the count. " * 20
    tokenizer = Tokenizer.train(text, 280, "a test")
    tokenizer.save(tmp_path / "tokenizer.json")
    tokens = torch.from_numpy(tokenizer.encode(text)[:6].astype("int64"))[None]
    decode = decoder(tmp_path / "tokenizer.json")
    views = probe_views(tokens, 6, decode)
    assert all(view is not None and text.startswith(view["text"]) for view in views)
    assert len(views[5]["text"]) > 6  # type: ignore[index]
    assert decoder(None) is None
