"""Whether a federation is played faster by the stacked engine: what `--engine auto` asks."""

from p2p_tally.ids import ranked_names
from p2p_tally.learning.architectures import holders
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.setup import Task, make_model
from p2p_tally.runner.stacked.batched_model import layers_of
from p2p_tally.runner.stacked.convolutions import convolves

# Where `--engine auto` stacks. Measured on two cores with perceptrons on digits, as a multiple of the speed of exact:
# 2.4 with 2 peers of 4,810 parameters, 6 with 8, 23 with 64; 1.3 with 8 peers of half a million; about 2 where no two
# peers have the same model. CNNs by CPU time: 1.6 and 1.4 (`scripts/bench/cnn.py`). Not every other module can be
# batched, and those that can gain little: `auto` leaves them to exact.
FASTER_FROM = 2
SMALL_MODEL = 1 << 20


def is_faster(task: Task) -> bool:
    """Whether to stack these peers rather than run them one by one."""
    if task.federation.nodes < FASTER_FROM or not method_of(task.federation).sends.stackable:
        return False
    names = ranked_names(task.federation.nodes)
    models = (make_model(task, names[ranks[0]], ranks[0]) for ranks in holders(task.federation).values())
    return all(
        bool(layers_of(model) or convolves(model)) and sum(p.numel() for p in model.parameters()) <= SMALL_MODEL
        for model in models
    )
