"""DSpodFL: every local step and every link of a merge happens by chance.

Zehtabi, Han, Parasnis, Hosseinalipour and Brinton, "Decentralized Sporadic Federated Learning", ICLR 2025 (arXiv
2402.03448), the update of section 3: x_i + sum over j of b_ij v_ij (x_j - x_i) - step v_i g_i, with indicators v drawn
for each peer and each link, and b the Metropolis-Hastings weights of the whole graph. A link that is not used leaves
its weight with the peer itself, so the mean over all peers is kept. Simplifications: docs/methods.md.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from p2p_tally.config import Federation
from p2p_tally.learning.exchanges.exchange import Exchange, both_ways

if TYPE_CHECKING:
    from p2p_tally.topologies import Topology


def of_the_whole_graph(
    _exchange: Exchange, _federation: Federation, topology: "Topology", member: str, round: int, heard: Sequence[str]
) -> list[dict[str, float]]:
    """The weights that the graph gives; a member keeps what it would give to those it does not hear."""
    weights = topology.weights(member, round)
    given = {peer: weights[peer] for peer in heard}
    return [{member: 1.0 - sum(given.values()), **given}]


SPORADIC = Exchange(links=both_ways, weights=of_the_whole_graph)
