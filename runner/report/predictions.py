"""Predictions as a table of text: a header, then a row each."""

import csv
from collections.abc import Iterable, Iterator
from typing import TextIO

import numpy as np

from p2p_tally.learning.saved.inputs import Inputs
from p2p_tally.learning.saved.predict import Predictions

Row = list[str]


def rows_of(found: Predictions, inputs: Inputs) -> Iterator[Row]:
    """Of text also the token at each position, and the predicted one as text."""
    tokenizer, labels = inputs.tokenizer, found.labels
    header = ["token" if tokenizer else "example", "prediction", "probability"]
    yield header + (["text"] if tokenizer else []) + (["label"] if labels is not None else [])
    for place, (cls, probability) in enumerate(zip(found.classes.tolist(), found.probabilities.tolist(), strict=True)):
        row = [inputs.names[place] if inputs.names else str(place), str(cls), f"{probability:.6f}"]
        if tokenizer is not None:
            row.append(tokenizer.decode(np.array([cls])))
        if labels is not None:
            row.append(str(labels[place]))
        yield row


def write_rows(file: TextIO, rows: Iterable[Row]) -> None:
    csv.writer(file, lineterminator="\n").writerows(rows)
