"""Predictions as a table."""

import io

import numpy as np
import torch

from p2p_tally.learning.data import Arrays
from p2p_tally.learning.saved.inputs import Inputs
from p2p_tally.learning.saved.predict import Predictions
from p2p_tally.runner.report.predictions import rows_of, write_rows

PARTS = [Arrays(torch.zeros(2, 1), None)]


def test_a_row_each_with_its_name_and_label() -> None:
    found = Predictions(np.array([4, 0]), np.array([0.25, 1.0]), np.array([4, 1]))
    assert list(rows_of(found, Inputs(PARTS))) == [
        ["example", "prediction", "probability", "label"],
        ["0", "4", "0.250000", "4"],
        ["1", "0", "1.000000", "1"],
    ]
    named = list(rows_of(Predictions(found.classes, found.probabilities, None), Inputs(PARTS, ["a.png", "b.png"])))
    assert named[1:] == [["a.png", "4", "0.250000"], ["b.png", "0", "1.000000"]]


def test_what_has_commas_or_line_breaks_stays_one_field() -> None:
    file = io.StringIO()
    write_rows(file, [["a,b", "\n"]])
    assert file.getvalue() == '"a,b","\n"\n'
