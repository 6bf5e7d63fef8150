"""Which satellites of a constellation see each other, round by round: the links of "Learning in Orbit".

Kaur and Prasad, "Learning in Orbit: A Physics-Aware Graph-Decentralized Federated Learning for Multi-Satellite Space
Situational Awareness", AAAI 2026 workshop FLCA. The text was not at hand; the geometry is that of a Walker delta
constellation: planes of the same inclination, spread evenly around the Earth, with as many satellites evenly spaced in
each, on circular orbits of one altitude. Two satellites have a link while the Earth and its atmosphere do not stand
between them. The Earth's turning changes nothing for them, so the graphs repeat after one orbit.
"""

import math
from collections.abc import Iterable

import numpy as np

from p2p_tally.topologies.topology import Edge

EARTH_KM = 6371.0
ATMOSPHERE_KM = 80.0  # links that graze lower are blocked
INCLINATION = math.radians(53)  # of all planes, as in the first shell of Starlink
# Two distances are compared to the metre, so that every machine finds the same links.
DIGITS = 3


def positions(count: int, planes: int, altitude: float, turn: float) -> np.ndarray:
    """Where the satellites are [N, 3], in km from the Earth's centre; `turn`: the part of an orbit that has passed.

    Ranks go plane by plane. A satellite is ahead of its neighbour in the plane before by 1/N of an orbit, as is usual,
    so that satellites of different planes do not meet where the planes cross.
    """
    plane, place = np.divmod(np.arange(count), count // planes)
    node = 2 * np.pi * plane / planes  # where the plane crosses the equator
    along = 2 * np.pi * (place / (count // planes) + plane / count + turn)
    flat, rise = np.cos(along), np.sin(along)
    x = np.cos(node) * flat - np.sin(node) * rise * math.cos(INCLINATION)
    y = np.sin(node) * flat + np.cos(node) * rise * math.cos(INCLINATION)
    found: np.ndarray = (EARTH_KM + altitude) * np.stack([x, y, rise * math.sin(INCLINATION)], 1)
    return found


def in_sight(places: np.ndarray) -> Iterable[Edge]:
    """The pairs of places [N, 3] between which neither the Earth nor its atmosphere stands.

    All are equally far from the centre, so the line between two comes nearest to it in its middle."""
    for one in range(len(places) - 1):
        nearest = np.linalg.norm(places[one] + places[one + 1 :], axis=1) / 2
        for other in np.flatnonzero(np.round(nearest, DIGITS) >= EARTH_KM + ATMOSPHERE_KM).tolist():
            yield one, one + 1 + other


def furthest(altitude: float) -> float:
    """The longest link at this altitude, in km."""
    return 2 * math.sqrt((EARTH_KM + altitude) ** 2 - (EARTH_KM + ATMOSPHERE_KM) ** 2)
