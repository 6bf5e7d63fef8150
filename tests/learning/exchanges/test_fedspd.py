"""FedSPD: who belongs to which cluster, turns, means of one cluster, the mixture: on paper."""

import math

import pytest
import torch
from conftest import small
from torch import nn

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.by_rows import ByRows
from p2p_tally.learning.exchanges.fedspd import (
    SOFT_CLUSTERS,
    Clusters,
    belonging,
    gradient_of_the_cluster,
    mean_of_the_cluster,
    mixture_answers,
    with_its_number,
)
from p2p_tally.learning.exchanges.local_steps import LocalBatch
from p2p_tally.learning.methods import METHODS
from p2p_tally.runner.simulation.simulate import simulate
from p2p_tally.runner.stacked.by_method import mixed_by_method
from p2p_tally.topologies import build

SETTINGS = Federation()


def test_the_mean_is_over_those_that_chose_the_same_cluster() -> None:
    """Three peers on a mesh: the first and the third train the first cluster, so both come to (2, 4); the second is
    alone with its own. The number of the cluster is not part of the result."""
    rows = torch.tensor([[1.0, 3.0, 0.0], [7.0, 7.0, 1.0], [3.0, 5.0, 0.0]])
    graph = build("mesh", [f"node-{rank}" for rank in range(3)])
    found = mixed_by_method(rows, SOFT_CLUSTERS, SETTINGS, graph, 1, lambda _: None)  # type: ignore[arg-type, return-value]
    assert found.tolist() == [[2.0, 4.0], [7.0, 7.0], [2.0, 4.0]]
    assert mean_of_the_cluster(rows[1:2], None, SETTINGS).tolist() == [7.0, 7.0]


def test_turns_go_by_the_mixture() -> None:
    """The first model begins at 0, the second a tenth of the way to 10. With three examples of four in the first, the
    credit of both is (3/4, 1/4), then less what was chosen: the first is chosen three times of four."""
    peer = Clusters(torch.tensor([0.0]), torch.tensor([10.0]))
    assert peer.state["second"].tolist() == [1.0]
    chosen = []
    for _ in range(12):
        chosen.append(int(peer.state["chosen"]))
        peer.state["counts"].copy_(torch.tensor([30.0, 10.0]))
        peer.step(torch.tensor([0.0]))
        assert peer.state["mixture"].tolist() == [0.75, 0.25] and not peer.state["counts"].any()
    assert sum(chosen) == 3 and chosen[:8] == [0, 0, 0, 1, 0, 0, 0, 1]


def test_a_merge_goes_to_the_chosen_model_and_brings_the_next() -> None:
    """Two peers. The first has trained the first cluster and its merge gave 4; by its credit the second is next, at 1.
    The second peer has trained the second, whose merge gave 9; next is its first, still at 0."""
    peers = Clusters(torch.zeros(2, 1), torch.full((2, 1), 10.0))
    peers.state["chosen"].copy_(torch.tensor([[0.0], [1.0]]))
    peers.state["credit"].copy_(torch.tensor([[-0.5, 0.0], [0.0, -0.5]]))
    given = with_its_number(peers, torch.tensor([[3.0], [8.0]]))
    assert given.tolist() == [[3.0, 0.0], [8.0, 1.0]]
    assert peers.step(torch.tensor([[4.0], [9.0]])).tolist() == [[1.0], [0.0]]
    assert peers.state["first"].tolist() == [[4.0], [0.0]] and peers.state["second"].tolist() == [[1.0], [9.0]]
    assert peers.state["chosen"].tolist() == [[1.0], [0.0]]
    # Both at 1/2, and what is trained is taken as it is now.
    assert mixture_answers(torch.tensor([[3.0], [2.0]]), peers.state, SETTINGS).tolist() == [[3.5], [5.5]]
    peers.state["mixture"].copy_(torch.tensor([[0.25, 0.75], [1.0, 0.0]]))
    assert mixture_answers(torch.tensor([[3.0], [2.0]]), peers.state, SETTINGS).tolist() == [[3.25], [2.0]]


def test_an_example_belongs_where_its_loss_is_lower_and_one_in_ten_always() -> None:
    own, other = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[2.0, 2.0, 1.0]])
    assert belonging(own, other).tolist() == [[True, True, False]]
    assert belonging(other, own).tolist() == [[False, True, True]]
    worse = torch.arange(1.0, 21.0)[None]  # by 1 to 20: of twenty examples, the two that are least worse
    assert belonging(worse, torch.zeros(1, 20)).nonzero()[:, 1].tolist() == [0, 1]


@pytest.mark.parametrize(("merges", "slopes"), [(2.0, (0.25, -0.25)), (0.0, (-0.25, 0.25))])
def test_one_local_step_by_hand(merges: float, slopes: tuple[float, float]) -> None:
    """The chosen model says (1/4, 3/4), the other (1/2, 1/2), for both examples. Of label 1 the chosen does better, of
    label 0 worse: from the first alone its slope is (1/4, -1/4); from both, before each model has had its turn, the
    mean with (-3/4, 3/4), which is (-1/4, 1/4). One example is counted for each cluster."""
    model = ByRows(nn.Linear(1, 2, bias=False))
    peer = Clusters(torch.zeros(1, 2), torch.zeros(1, 2))
    peer.state["merges"].fill_(merges)
    trained = torch.tensor([[0.0, math.log(3)]])
    batch = LocalBatch(lambda: trained, torch.ones(1, 2, 1), torch.tensor([[1, 0]]), (model, model))
    found = gradient_of_the_cluster(batch, trained, peer.state, SETTINGS)
    torch.testing.assert_close(found, torch.tensor([list(slopes)]))
    assert peer.state["counts"].tolist() == [[1.0, 1.0]]
    batch.labels = torch.tensor([[1, 1]])
    peer.state["chosen"].fill_(1.0)
    gradient_of_the_cluster(batch, trained, peer.state, SETTINGS)
    assert peer.state["counts"].tolist() == [[1.0, 3.0]]  # both belong to the second, which is the chosen one


def test_both_clusters_are_chosen_in_a_run_and_a_checkpoint_keeps_them() -> None:
    """A mean of models that chose otherwise would make all alike: on a mesh peers with other data differ."""
    run = simulate(small(nodes=4, method="fedspd", partition="dirichlet:0.1", rounds=8, merge_every=1, eval_every=8))
    assert len(set(run.parameters_sha256)) > 1 and METHODS["fedspd"].exchange is SOFT_CLUSTERS
    assert run.lines[-1].payload_bytes == 8 * 3 * 4 * (4810 + 1)


def test_members_that_join_are_refused() -> None:
    with pytest.raises(ConfigError, match="--join and --leave: the method fedspd keeps a second model at each peer"):
        simulate(small(nodes=3, method="fedspd", join="node-2@3"))
