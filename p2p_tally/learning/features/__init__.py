"""Frozen features: what images become once, so that peers train small models on vectors.

An extractor is learned from images alone (`learn`) and turns images into features (`embed`); a file of features holds
the extractor too (`write_features`, `read_extractor`). `Backbone` does the same with a torch module of the user's.
"""

from p2p_tally.learning.features.backbone import Backbone
from p2p_tally.learning.features.check import central_accuracy
from p2p_tally.learning.features.extractor import Extractor
from p2p_tally.learning.features.file import read_extractor, write_extractor, write_features
from p2p_tally.learning.features.learn import Recipe, embed, learn
from p2p_tally.learning.features.parts import Parts
from p2p_tally.learning.features.progress import Display

__all__ = [
    "Backbone",
    "Display",
    "Extractor",
    "Parts",
    "Recipe",
    "central_accuracy",
    "embed",
    "learn",
    "read_extractor",
    "write_extractor",
    "write_features",
]
