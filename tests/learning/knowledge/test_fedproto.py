"""FedProto: centroids of three peers and the pull of one example, on paper; both engines; what is refused."""

import numpy as np
import pytest
import torch

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.knowledge.fedproto import centroids, features, pulled_to_centroids
from p2p_tally.runner.experiments.experiment import ByteFacts, Cell
from p2p_tally.runner.experiments.payload import cell_bytes
from p2p_tally.runner.simulation.simulate import simulate


def test_three_peers_on_paper() -> None:
    """Class 0: three examples around (1, 0) and one at (5, 4) have the mean ((3 + 5) / 4, 4 / 4) = (2, 1). Class 1: the
    third peer alone. Class 2: nobody. If the second's weight is three times the first's, both count as three examples:
    class 0 is (3, 2)."""
    tables = [
        np.array([[3, 1, 0], [0, 0, 0], [0, 0, 0]], np.float32),
        np.array([[1, 5, 4], [0, 0, 0], [0, 0, 0]], np.float32),
        np.array([[0, 0, 0], [2, -1, 7], [0, 0, 0]], np.float32),
    ]
    found = centroids(tables, 3, Federation())
    np.testing.assert_allclose(found, [[4, 2, 1], [2, -1, 7], [0, 0, 0]], rtol=1e-6)
    weighed = centroids(tables, 3, Federation(), np.array([0.2, 0.6, 0.2]))
    np.testing.assert_allclose(weighed[:, 1:], [[3, 2], [-1, 7], [0, 0]], rtol=1e-6)
    assert (weighed[:, 0] > 0).tolist() == [True, True, False]


def test_the_loss_on_paper() -> None:
    """Two examples with features (1, 3) and logits (0, 0). The centroid of the first's class is (2, 1): the squares 1
    and 4 have the mean 2.5. That of the second is not known. Cross-entropy is ln 2 for each. With weights 0.5 and 0.2
    the mean loss is 0.5 ln 2 + 0.2 * 2.5 / 2; its slope at the first's features is 0.2 * (-1, 2) / 2."""
    outputs = torch.tensor([[1.0, 3, 0, 0], [1.0, 3, 0, 0]], requires_grad=True)
    rows = torch.tensor([[4.0, 2, 1], [0.0, 0, 0]])
    loss = pulled_to_centroids(outputs, torch.tensor([0, 1]), rows, 0.5, 0.2, 2)
    assert loss.item() == pytest.approx(0.5 * np.log(2) + 0.2 * 2.5 / 2)
    loss.backward()
    assert outputs.grad is not None
    np.testing.assert_allclose(outputs.grad[:, :2], [[-0.1, 0.2], [0, 0]], rtol=1e-6)
    np.testing.assert_allclose(outputs.grad[:, 2:], [[-0.125, 0.125], [0.125, -0.125]], rtol=1e-6)
    alone = pulled_to_centroids(outputs.detach(), torch.tensor([0, 1]), None, 0.5, 0.2, 2)
    assert float(alone) == pytest.approx(0.5 * np.log(2))


def test_what_is_sent_is_bounded() -> None:
    assert features(torch.tensor([[1e9, -1e9, 2.0]]), Federation()).tolist() == [[1e4, -1e4, 2.0]]


@pytest.mark.parametrize(
    "options", [{"model": "mlp:8x2", "topology": "ring"}, {"model": "linear", "alpha": 0.0}], ids=str
)
def test_the_engines_agree(options: dict[str, object]) -> None:
    federation = Federation.parse(
        {"method": "fedproto", "nodes": 4, "rounds": 12, "warmup": 2, "local_steps": 2, "eval_every": 6, **options}
    )
    exact, stacked = (simulate(federation, engine=engine) for engine in ("exact", "stacked"))
    np.testing.assert_allclose(stacked.loss, exact.loss, atol=1e-4)
    assert stacked.lines[-1].payload_bytes == exact.lines[-1].payload_bytes > 0


def test_what_does_not_fit_is_one_line() -> None:
    small = {"method": "fedproto", "nodes": 3, "rounds": 2}
    with pytest.raises(ConfigError) as caught:
        simulate(Federation.parse({**small, "model": "mlp:8,mlp:16"}))
    assert str(caught.value) == (
        "--model mlp:8,mlp:16: the method fedproto averages features, and these models have 8, 16 of them; "
        "accepted are models with the same number"
    )
    with pytest.raises(ConfigError) as caught:
        simulate(Federation.parse({**small, "model": "cnn:4x2"}), engine="stacked")
    assert str(caught.value) == (
        "--engine stacked: --method fedproto reads the features of perceptrons alone; "
        "accepted for --model cnn:4x2 is --engine exact"
    )
    with pytest.raises(ConfigError, match="cell one: the method fedproto sends features; facts must say how many"):
        cell_bytes(Cell("one", Federation.parse(small), ByteFacts(classes=10, parameters=4810), "mesh"))
