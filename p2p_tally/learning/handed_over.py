"""How many bytes a newcomer gets from a member: the tensors of `Learner.handed_over`, counted without a learner."""

from p2p_tally.config import Federation
from p2p_tally.learning.methods import method_of
from p2p_tally.learning.schedule import sends_changes

FLOAT_BYTES = 4


def handed_bytes(federation: Federation, parameters: int) -> int:
    """Of a resolved federation; 0 where peers never merge."""
    if not federation.merge_every:
        return 0
    import torch  # noqa: PLC0415 - only where members join

    method = method_of(federation)
    vectors = 1 + int(method.proximal) + int(sends_changes(federation))
    student = 2 * parameters + 1 if method.distils_merged else 0  # AdamW's two vectors, and the count of its steps
    outer = method.merge_step(torch.zeros(parameters), federation).state.values()
    kept = sum(tensor.numel() * tensor.element_size() for tensor in outer)
    return FLOAT_BYTES * (vectors * parameters + student) + kept
