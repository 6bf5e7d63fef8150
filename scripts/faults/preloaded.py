"""Loads what a node needs, once: nodes are forked from the process that has done so. Starts no thread."""

import torch

import p2p_tally.cli
import p2p_tally.learning.data.digits
import p2p_tally.node.service.process
import p2p_tally.runner.simulation.simulate  # noqa: F401 - all of the learning

torch.set_num_threads(1)
