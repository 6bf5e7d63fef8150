"""What answers are about: the classes, by a peer's own examples, and by hand."""

import numpy as np
import pytest
import torch

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.data import Arrays
from p2p_tally.learning.schedule import resolve
from p2p_tally.learning.subjects import OwnClasses, class_means


def test_means_by_class_on_paper() -> None:
    given = np.array([[0.2, 0.8], [0.4, 0.6], [1.0, 0.0]], np.float32)
    table = class_means(given, np.array([1, 1, 0]), 3)
    np.testing.assert_allclose(table, [[1, 1.0, 0.0], [2, 0.3, 0.7], [0, 0, 0]], rtol=1e-6)
    # Of two peers at once.
    both = class_means(np.stack([given, given]), np.array([[1, 1, 0], [2, 2, 2]]), 3)
    np.testing.assert_array_equal(both[0], table)
    np.testing.assert_allclose(both[1, 2], [3, 1.6 / 3, 1.4 / 3], rtol=1e-6)


def test_own_examples_are_drawn_by_the_peers_own_generator_and_taught_by_their_label() -> None:
    private = Arrays(torch.arange(10.0)[:, None], torch.arange(10) % 2)
    subject = OwnClasses(private, 4, 2, torch.Generator().manual_seed(7))
    x, y = subject.sample(1)
    drawn = torch.randint(10, (4,), generator=torch.Generator().manual_seed(7))
    assert x[:, 0].tolist() == drawn.tolist() and y is not None and y.tolist() == (drawn % 2).tolist()
    target = torch.tensor([[0.9, 0.1], [0.3, 0.7]])
    assert subject.rows(target, torch.tensor([1, 0, 1])).tolist() == target[[1, 0, 1]].tolist()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"warmup": "auto"}, "--warmup auto: the method fd looks at no probes; accepted is a number of rounds"),
        (
            {"tally_weights": "reliability"},
            "--tally-weights reliability: the method fd answers for classes, not for probes; "
            "accepted is auto or uniform or mixing",
        ),
        ({"exam": 8}, "--exam 8: the method fd answers for classes, not for probes; accepted is 0"),
        (
            {"merge_when": "drift", "merge_every": 5},
            "--merge-when drift: the method fd answers for classes, not for probes; accepted is clock",
        ),
        (
            {"soft_precision": "int8"},
            "--soft-precision int8: the method fd answers for classes, not for probes; accepted is float32",
        ),
        (
            {"consensus_weight": "margin"},
            "--consensus-weight margin: the method fd answers for classes, not for probes; accepted is fixed",
        ),
        (
            {"calibrate": 0.5},
            "--calibrate 0.5: the method fd answers for classes, not for probes; accepted is 0",
        ),
    ],
    ids=str,
)
def test_options_about_probes_are_refused_in_one_line(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(Federation.parse({"method": "fd", **options}), labelled=True)
    assert str(caught.value) == said


def test_own_examples_have_labels_where_probes_have_none() -> None:
    assert resolve(Federation(method="fd"), labelled=False).alpha == 0.5
