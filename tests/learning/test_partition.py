"""Shards: every example once and no shard empty, whatever the labels; or one line that says how to fix it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p_tally.errors import ConfigError, DataError
from p2p_tally.learning.data import Arrays, Examples
from p2p_tally.learning.data import partition as module
from p2p_tally.learning.data.partition import cut, partition

torch.set_num_threads(1)

quick = settings(max_examples=60, deadline=None)

label_lists = st.lists(st.integers(0, 4), min_size=1, max_size=50)
seeds = st.integers(0, 2**63 - 1)


def examples(labels: list[int]) -> Arrays:
    """Examples that carry their own number as input."""
    return Arrays(torch.arange(float(len(labels)))[:, None], torch.tensor(labels))


def numbers(shard: Examples) -> list[int]:
    return [int(x) for x in shard.take(torch.arange(len(shard)))[0].flatten()]


def classes_of(shard: Examples) -> list[int]:
    assert shard.labels is not None
    return shard.labels.tolist()


def assert_lawful(labels: list[int], how: str, nodes: int, seed: int) -> None:
    shards = partition(examples(labels), how, nodes, seed)
    assert len(shards) == nodes
    assert all(len(shard) > 0 for shard in shards)
    assert sorted(number for shard in shards for number in numbers(shard)) == list(range(len(labels)))
    for shard in shards:
        assert classes_of(shard) == [labels[number] for number in numbers(shard)]
    again = partition(examples(labels), how, nodes, seed)
    assert [numbers(shard) for shard in again] == [numbers(shard) for shard in shards]


@quick
@given(label_lists, st.integers(1, 8), seeds)
def test_iid_law(labels: list[int], nodes: int, seed: int) -> None:
    if len(labels) < nodes:
        with pytest.raises(DataError, match=f"^--nodes {nodes}: only {len(labels)} private examples"):
            partition(examples(labels), "iid", nodes, seed)
        return
    assert_lawful(labels, "iid", nodes, seed)
    sizes = [len(shard) for shard in partition(examples(labels), "iid", nodes, seed)]
    assert max(sizes) - min(sizes) <= 1


@quick
@given(st.integers(1, 50), st.integers(1, 8), seeds)
def test_chunks_law(count: int, nodes: int, seed: int) -> None:
    if count < nodes:
        return
    assert_lawful([0] * count, "chunks", nodes, seed)
    shards = [numbers(shard) for shard in partition(examples([0] * count), "chunks", nodes, seed)]
    assert [number for shard in shards for number in shard] == list(range(count))  # each a run, in order
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@quick
@given(label_lists, st.integers(1, 6), st.integers(1, 4), seeds)
def test_shards_law(labels: list[int], nodes: int, each: int, seed: int) -> None:
    if len(labels) < nodes * each:
        with pytest.raises(DataError):
            partition(examples(labels), f"shards:{each}", nodes, seed)
        return
    assert_lawful(labels, f"shards:{each}", nodes, seed)


@quick
@given(label_lists, st.integers(1, 6), st.sampled_from(["0.05", "0.5", "1", "100", "1e-3", "1e6"]), seeds)
def test_dirichlet_law(labels: list[int], nodes: int, concentration: str, seed: int) -> None:
    how = f"dirichlet:{concentration}"
    try:
        partition(examples(labels), how, nodes, seed)
    except DataError as error:
        assert "\n" not in str(error)
        assert nodes > 1  # alone, a node always has everything
        return
    assert_lawful(labels, how, nodes, seed)


@pytest.mark.parametrize("how", ["dirichlet:0.5", "iid", "shards:2"])
def test_plenty_of_examples_always_make_shards(how: str) -> None:
    labels = [number % 10 for number in range(400)]
    for seed in range(10):
        assert_lawful(labels, how, 8, seed)


@pytest.mark.parametrize("how", ["dirichlet:0.5", "iid", "shards:2"])
def test_the_seed_decides(how: str) -> None:
    labels = [number % 10 for number in range(200)]
    one, other = partition(examples(labels), how, 4, 1), partition(examples(labels), how, 4, 2)
    assert [numbers(shard) for shard in one] != [numbers(shard) for shard in other]


def test_partition_of_a_subset_stays_inside_it() -> None:
    some = examples([number % 3 for number in range(60)]).subset(torch.arange(0, 60, 2))
    for how in ("dirichlet:1", "iid", "shards:2"):
        shards = partition(some, how, 3, 0)
        assert sorted(number for shard in shards for number in numbers(shard)) == list(range(0, 60, 2))


def test_shards_of_one_class_each() -> None:
    # 10 classes of 20, 5 nodes x 2 shards: a run is exactly a class, so every node has two classes whole.
    labels = [number % 10 for number in range(200)]
    for shard in partition(examples(labels), "shards:2", 5, 0):
        assert sorted(np.bincount(classes_of(shard), minlength=10).tolist()) == [0] * 8 + [20] * 2


def test_dirichlet_skews_as_its_concentration_says() -> None:
    labels = [number % 10 for number in range(4000)]  # 400 of each class over 4 nodes: 100 each if even

    def shares(how: str) -> np.ndarray:
        return np.array([np.bincount(classes_of(s), minlength=10) for s in partition(examples(labels), how, 4, 0)])

    even, skewed = shares("dirichlet:10000"), shares("dirichlet:0.1")
    assert np.abs(even - 100).max() <= 5  # standard deviation of a share: 400 sqrt(3/16 / 40001) = 0.87
    assert (skewed.max(0) > 200).sum() >= 7  # one node has most of a class, in most classes


def test_a_draw_that_leaves_a_peer_with_nothing_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = [0] * 12 + [1] * 12

    def draws_once(seed: int) -> bool:
        try:
            partition(examples(labels), "dirichlet:0.5", 4, seed)
        except DataError:
            return False
        return True

    monkeypatch.setattr(module, "DRAWS", 1)
    unlucky = [seed for seed in range(30) if not draws_once(seed)]
    assert unlucky
    monkeypatch.undo()
    for seed in unlucky:
        assert_lawful(labels, "dirichlet:0.5", 4, seed)


@pytest.mark.parametrize(
    ("labels", "how", "nodes", "said"),
    [
        ([0, 1, 0], "iid", 4, "--nodes 4: only 3 private examples"),
        ([0, 1, 0], "dirichlet:1", 4, "--nodes 4: only 3 private examples"),
        ([0] * 7, "shards:2", 4, "--partition shards:2: 4 nodes x 2 shards need as many private examples, there are 7"),
        # All of one class goes almost wholly to one of the four.
        ([0] * 40, "dirichlet:0.0001", 4, "--partition dirichlet:0.0001: 100 draws all left some of the 4 peers"),
    ],
)
def test_the_impossible_is_one_line_that_says_how(labels: list[int], how: str, nodes: int, said: str) -> None:
    with pytest.raises(DataError) as caught:
        partition(examples(labels), how, nodes, 0)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_a_cut_by_class_needs_labels() -> None:
    bare = examples([0, 1, 2, 3]).without_labels()
    assert len(partition(bare, "iid", 2, 0)) == 2
    for how in ("dirichlet:1", "shards:1"):
        with pytest.raises(DataError, match=rf"^--partition {how}: needs one label an example[^\n]*$"):
            partition(bare, how, 2, 0)


@pytest.mark.parametrize(
    "how",
    [
        "random",
        "iid:3",
        "chunks:3",
        "dirichlet",
        "dirichlet:",
        "dirichlet:0",
        "dirichlet:-1",
        "dirichlet:nan",
        "dirichlet:inf",
        "dirichlet:1e999",
        "dirichlet:x",
        "shards",
        "shards:",
        "shards:0",
        "shards:-2",
        "shards:1.5",
        "shards:two",
    ],
)
def test_bad_ways_are_one_line_that_names_them(how: str) -> None:
    with pytest.raises(ConfigError) as caught:
        partition(examples([0, 1, 2, 3]), how, 2, 0)
    assert str(caught.value).startswith(f"--partition {how}: accepted ")
    assert "\n" not in str(caught.value)


@quick
@given(label_lists, st.integers(1, 60), st.integers(1, 12), seeds)
def test_resample_law(labels: list[int], nodes: int, each: int, seed: int) -> None:
    """Every node its K draws from all examples, however many nodes; more nodes change nothing for the first ones."""
    shards = [numbers(shard) for shard in partition(examples(labels), f"resample:{each}", nodes, seed)]
    assert [len(shard) for shard in shards] == [each] * nodes
    assert {number for shard in shards for number in shard} <= set(range(len(labels)))
    more = partition(examples(labels), f"resample:{each}", nodes + 5, seed)
    assert [numbers(shard) for shard in more[:nodes]] == shards


def test_resampled_shards_differ_from_node_to_node() -> None:
    shards = [numbers(shard) for shard in partition(examples([0] * 1000), "resample:8", 50, 0)]
    assert len({tuple(shard) for shard in shards}) == 50


@pytest.mark.parametrize(
    "how", ["resample", "resample:0", "resample:2.5", "resample:-1", "resample:x", f"resample:{10**20}"]
)
def test_resample_wants_a_count(how: str) -> None:
    with pytest.raises(ConfigError, match="a positive whole number"):
        partition(examples([0, 1]), how, 2, 0)


def test_the_default_gives_way_where_peers_are_more_than_the_examples_can_serve(
    caplog: pytest.LogCaptureFixture,
) -> None:
    labels = np.arange(300) % 10
    shards, how = cut(examples(labels), "dirichlet:0.5", 1000, 0)
    assert (how, len(shards), {len(shard) for shard in shards}) == ("resample:40", 1000, {40})
    assert caplog.messages == [
        "--partition dirichlet:0.5: 300 private examples are too few for 1000 peers; taken is resample:40: each peer "
        "draws its own from all"
    ]
    with pytest.raises(DataError):  # what the operator chose is not exchanged for something else
        cut(examples(labels), "iid", 1000, 0)


def test_where_the_default_is_possible_it_is_what_it_was(caplog: pytest.LogCaptureFixture) -> None:
    labels = np.arange(300) % 10
    shards, how = cut(examples(labels), "dirichlet:0.5", 4, 0)
    before = partition(examples(labels), "dirichlet:0.5", 4, 0)
    assert how == "dirichlet:0.5" and caplog.messages == []
    assert [shard.labels.tolist() for shard in shards] == [shard.labels.tolist() for shard in before]
