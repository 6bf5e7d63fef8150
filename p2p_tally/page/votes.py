"""The votes of one round as the page shows them: of the first probes, by node, with labels and pictures.

The votes of several nodes on the same round are put together into one record: all nodes answer the same probes.
"""

import base64
import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

# Probes whose votes are compared, and how many of them are shown with a picture.
COMPARED = 32
SHOWN = 6

# Rounds that are kept, for shares of agreement.
KEPT_ROUNDS = 24

# So many of them, the newest, have pictures: the page shows the one that most nodes have told of.
WITH_PICTURES = 3

# A picture with longer sides is shown smaller.
LONGEST_SIDE = 64

# Where a text is longer, its end is shown.
TEXT_LENGTH = 160

Record = dict[str, Any]


def vote_record(
    round: int,
    votes: Mapping[str, np.ndarray],
    labels: np.ndarray | None,
    views: list[dict[str, Any] | None],
    classes: int,
) -> Record:
    """The first votes [P] of each node, -1 for those left out, and labels [P], negative where there is none."""
    return {
        "round": round,
        "votes": {name: _cast(some[:COMPARED], classes) for name, some in votes.items()},
        "labels": None if labels is None else labels[:COMPARED].tolist(),
        "views": views[:SHOWN],
    }


def _cast(votes: np.ndarray, classes: int) -> list[int]:
    """A vote for a class beyond the last is none: the node abstains."""
    cast: list[int] = np.where(votes < classes, votes, -1).tolist()
    return cast


def view_of(example: np.ndarray) -> dict[str, Any] | None:
    """A picture of an input, where it looks like one: [H, W], [1 or 3, H, W], or a square laid out as a row."""
    pixels = _as_image(example)
    if pixels is None:
        return None
    step = math.ceil(max(pixels.shape[1:]) / LONGEST_SIDE)
    pixels = pixels[:, ::step, ::step]
    channels, height, width = pixels.shape
    data = np.ascontiguousarray(np.moveaxis(_as_bytes(pixels), 0, -1)).tobytes()
    return {"width": width, "height": height, "channels": channels, "pixels": base64.b64encode(data).decode()}


def text_view(text: str) -> dict[str, Any]:
    return {"text": text if len(text) <= TEXT_LENGTH else "…" + text[-TEXT_LENGTH:]}


def _as_image(example: np.ndarray) -> np.ndarray | None:
    """[1 or 3, H, W]; None where this is no image."""
    if example.ndim == 1:
        side = math.isqrt(len(example))
        return example.reshape(1, side, side) if side >= 4 and side * side == len(example) else None
    if example.ndim == 2:
        return example[None]
    if example.ndim == 3 and example.shape[0] in (1, 3):
        return example
    return None


def _as_bytes(pixels: np.ndarray) -> np.ndarray:
    if pixels.dtype == np.uint8:
        return pixels
    values = np.nan_to_num(pixels.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(values.min()), float(values.max())
    scaled: np.ndarray = np.rint((values - low) * (255.0 / (high - low) if high > low else 0.0)).astype(np.uint8)
    return scaled


class VoteRecords:
    """The records of the last rounds that were looked at. Only the newest few have pictures."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, Record]] = deque(maxlen=KEPT_ROUNDS)

    def add(self, serial: int, record: Record, teller: str | None = None) -> bool:
        """Add a record, or the votes of more nodes to the record of its round. False where it brings nothing new.

        `teller`: the node that tells it. Of its own vote it knows best; of the others' votes what was told first stays.
        """
        for place, (_, kept) in enumerate(self._kept):
            if kept["round"] == record["round"]:
                votes = record["votes"] | kept["votes"]
                if teller in record["votes"]:
                    votes[teller] = record["votes"][teller]
                joined = kept | {"votes": votes, "views": kept["views"] or record["views"]}
                if joined == kept:
                    return False
                del self._kept[place]
                self._kept.insert(place, (serial, joined))
                return True
        if self._kept and record["round"] < self._kept[-1][1]["round"] - KEPT_ROUNDS:
            self._kept.clear()  # the run has gone back to an earlier round
        self._kept.append((serial, record))
        if len(self._kept) > WITH_PICTURES:
            added, old = self._kept[-1 - WITH_PICTURES]
            self._kept[-1 - WITH_PICTURES] = added, old | {"views": []}
        return True

    def since(self, serial: int) -> list[Record]:
        return [record for added, record in self._kept if added > serial]
