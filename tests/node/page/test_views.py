"""Probes as pictures or text."""

import torch

from p2p_tally.node.page.views import probe_views
from p2p_tally.page.votes import SHOWN


def test_images_become_pictures() -> None:
    views = probe_views(torch.rand(40, 3, 32, 32), 1)
    assert len(views) == SHOWN
    assert all(view is not None and view["channels"] == 3 for view in views)


def test_of_a_text_what_stands_before_the_position_is_shown() -> None:
    tokens = torch.tensor([[10, 11, 12, 13], [20, 21, 22, 23]])
    assert probe_views(tokens, 4)[:2] == [{"text": "10"}, {"text": "10 11"}]
    assert probe_views(tokens, 4, lambda ids: "".join(chr(55 + one) for one in ids))[3] == {"text": "ABCD"}
