"""Predictions and accuracy of a trained model, by hand."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from p2p_tally.errors import DataError
from p2p_tally.learning import evaluation
from p2p_tally.learning.data import Arrays
from p2p_tally.learning.saved.about import About
from p2p_tally.learning.saved.inputs import Inputs, TokenRows
from p2p_tally.learning.saved.loaded import TrainedModel
from p2p_tally.learning.saved.predict import evaluate, predict

ABOUT = About("own", 0, 0, (3,), 3)


def as_it_is(classes: int = 3) -> TrainedModel:
    """The inputs are the logits."""
    return TrainedModel(nn.Identity(), About("own", 0, 0, (classes,), classes), None)


X = torch.tensor([[2.0, 0, 0], [0, 2, 0], [0, 0, 2], [2, 0, 1], [0, 1, 2]])
Y = torch.tensor([0, 1, 1, 0, 2])


@pytest.mark.parametrize("batch", [1, 2, 1024])
def test_accuracy_loss_and_confusion_by_hand(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "EVALUATION_BATCH", batch)
    found = evaluate(as_it_is(), Inputs([Arrays(X, Y)]))
    assert (found.count, found.accuracy) == (5, 80.0)
    assert found.loss == pytest.approx(float(F.cross_entropy(X, Y)))
    assert found.perplexity == pytest.approx(np.exp(found.loss))
    assert found.confusion is not None
    assert found.confusion.tolist() == [[2, 0, 0], [0, 1, 1], [0, 0, 1]]


def test_predictions_and_how_sure_they_are() -> None:
    found = predict(as_it_is(), Inputs([Arrays(X, None)]))
    assert found.classes.tolist() == [0, 1, 2, 0, 2] and found.labels is None
    assert found.probabilities == pytest.approx(X.softmax(-1).amax(-1).numpy())
    labels = predict(as_it_is(), Inputs([Arrays(X, Y)])).labels
    assert labels is not None and labels.tolist() == Y.tolist()


class NextToken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.one_hot((x + 1) % 3, 3).float()  # [B, T, 3]


def test_a_text_has_a_prediction_for_every_position() -> None:
    model = TrainedModel(NextToken(), ABOUT, None)
    parts = [TokenRows(torch.tensor([[0, 1, 2], [2, 1, 0]]), None), TokenRows(torch.tensor([[1]]), None)]
    assert predict(model, Inputs(parts)).classes.tolist() == [1, 2, 0, 0, 2, 1, 2]


def test_there_is_no_table_of_very_many_classes() -> None:
    found = evaluate(as_it_is(1001), Inputs([Arrays(torch.eye(1001)[:2], torch.tensor([0, 5]))]))
    assert found.confusion is None and found.accuracy == 50.0


def test_what_the_model_cannot_take_is_one_line() -> None:
    model = TrainedModel(nn.Linear(4, 3), ABOUT, None)
    with pytest.raises(DataError, match=r"^the model fails on inputs torch\.float32 \(3,\): [^\n]*$"):
        predict(model, Inputs([Arrays(X, None)]))
    with pytest.raises(DataError, match=r"^the model gives 4 classes, and its file says 3$"):
        predict(TrainedModel(nn.Linear(3, 4), ABOUT, None), Inputs([Arrays(X, None)]))
