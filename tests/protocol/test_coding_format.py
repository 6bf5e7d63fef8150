"""The bytes themselves, so that a change of the wire format cannot pass unseen."""

import numpy as np
import pytest

from p2p_tally.protocol.coding import decode_coded
from p2p_tally.protocol.enumerative import encode_ranked
from p2p_tally.protocol.packed import encode_packed
from p2p_tally.protocol.predictive import Scheme, decode_predictive, encode_predictive

LABELS = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3])


def test_packed():
    assert encode_packed(np.array([3, 1, 4]), 10).hex() == "3140"
    assert encode_packed(np.array([2047, 0, 1]), 2048).hex() == "ffe0000080"


@pytest.mark.parametrize(
    ("changed", "ballot"),
    [
        ({}, "08"),  # rank 0
        ({0: 0}, "09"),  # rank 1: the first vote, the lowest of the nine other classes
        ({0: 9}, "11"),  # rank 9
        ({1: 0}, "12"),  # rank 10: the second vote
        ({15: 9}, "98"),  # rank 144, the last with one mistake
        ({0: 0, 1: 0}, "99"),  # rank 145
        ({14: 8, 15: 9}, "2d90"),  # rank 1 + 144 + 120 * 81 - 1, less the 248 ranks of one byte
    ],
)
def test_ranked(changed, ballot):
    votes = LABELS.copy()
    votes[list(changed)] = list(changed.values())
    assert encode_ranked(votes, 10, LABELS).hex() == ballot
    np.testing.assert_array_equal(decode_coded(bytes.fromhex(ballot), 16, 10, LABELS), votes)


def test_ranked_without_labels():
    # 120 in base 10, then a labelled vote that is right: rank 0 times 1000, plus 120.
    assert encode_ranked(np.array([1, 7, 2, 0]), 10, np.array([-1, 7, -1, -1])).hex() == "80"


def long_ballot() -> tuple[np.ndarray, np.ndarray]:
    place = np.arange(96)
    labels = place * place % 17 % 10
    votes = np.where(place % 5 == 0, (labels + place) % 10, labels)
    return votes, labels


@pytest.mark.parametrize(
    ("scheme", "ballot"),
    [
        (
            Scheme.PLAIN,
            "01a07ff1d556b916920900510b736466d8530763edf97e072049dbb206518444a8401f06025caa5a4a6407da835f89c60305c00e",
        ),
        (Scheme.LABEL_EVEN, "020a1d5555a4924924be6ac0ad98cd"),
        (Scheme.LABEL, "03906ff03fe143aaaab492492480bbcf38e82596"),
        (Scheme.OWN_LABEL, "04a07ff02d56a143aaaab492492480bd556d16567bef454108"),
        (Scheme.LABEL_BEFORE, "05a07ff012924c90a24c937e0051249bd11609805c9e554e6d2bc90dac0aca034201"),
    ],
)
def test_predictive(scheme, ballot):
    votes, labels = long_ballot()
    assert encode_predictive(scheme, votes, 10, labels).hex() == ballot
    np.testing.assert_array_equal(decode_predictive(bytes.fromhex(ballot), 10, labels), votes)
