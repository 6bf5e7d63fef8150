"""The job on p2pfl: 8 nodes in one process, in memory or over gRPC, all linked, as in its MNIST example.

Its examples call set_standalone_settings() first, and keep models in Ray's workers: without Ray, nodes of one process
disturb each other's Lightning trainers. Two settings are others in all rows: all 8 nodes train in a round instead of 4,
and a node may be silent for 60 s instead of 10 s, as 8 nodes in one busy process may be. Over gRPC they still lose each
other now and then, and then do not finish. --tuned: models are gossiped each 0.1 s instead of each 2 s (until 20 s have
changed nothing, as before) and to all neighbours instead of 4, messages each 0.01 s instead of in a loop without a
pause, Ray gets a worker for each core, and only errors are logged. A node evaluates its part of the test set each
round, which cannot be turned off, and makes its optimiser anew each round. No TLS, like everywhere in this bench.
"""

import argparse
import os
import sys
import time

import lightning
import torch
from datasets import Dataset, DatasetDict
from digits_job import BATCH, NODES, accuracy, make_model, make_optimiser, mark, shard, test_set
from p2pfl.communication.protocols.protobuff.grpc import GrpcCommunicationProtocol
from p2pfl.communication.protocols.protobuff.memory import MemoryCommunicationProtocol
from p2pfl.learning.dataset.p2pfl_dataset import P2PFLDataset
from p2pfl.learning.frameworks.pytorch.lightning_model import LightningModel
from p2pfl.management.logger import logger
from p2pfl.node import Node
from p2pfl.settings import Settings
from p2pfl.utils.topologies import TopologyFactory, TopologyType
from p2pfl.utils.utils import set_standalone_settings, wait_convergence
from torch import Tensor
from torch.nn import functional as F


class Digits(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = make_model()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return make_optimiser(self)

    def training_step(self, batch: dict[str, Tensor], _: int) -> Tensor:
        return F.cross_entropy(self(batch["x"]), batch["y"])

    def test_step(self, batch: dict[str, Tensor], _: int) -> None:
        self.log("test_metric", (self(batch["x"]).argmax(-1) == batch["y"]).float().mean())


def data(node: int) -> P2PFLDataset:
    x, y = shard(node)
    test_x, test_y = (tensor[node::NODES] for tensor in test_set())
    dataset = P2PFLDataset(
        DatasetDict(
            train=Dataset.from_dict({"x": x.numpy(), "y": y.numpy()}),
            test=Dataset.from_dict({"x": test_x.numpy(), "y": test_y.numpy()}),
        )
    )
    dataset.set_batch_size(BATCH)
    return dataset


def make_node(kind: str, rank: int) -> Node:
    model = LightningModel(Digits())
    if kind == "memory":
        return Node(model, data(rank), addr=f"node-{rank}", protocol=MemoryCommunicationProtocol())
    return Node(model, data(rank), addr="127.0.0.1", protocol=GrpcCommunicationProtocol())


def mark_rounds(nodes: list[Node], rounds: int) -> None:
    """A round is complete when all nodes have come to the next. p2pfl has no event for that."""
    for round in range(1, rounds + 1):
        while not all(node.learning_workflow.finished or (node.state.round or 0) >= round for node in nodes):
            time.sleep(0.005)
        mark(round, accuracy(nodes[0].learner.get_model().get_model(), *test_set()) if round == rounds else None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["memory", "grpc"])
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--tuned", action="store_true")
    arguments = parser.parse_args()
    set_standalone_settings()
    Settings.ssl.USE_SSL = False
    Settings.heartbeat.TIMEOUT = 60
    if arguments.tuned:
        Settings.training.RAY_ACTOR_POOL_SIZE = os.cpu_count() or 1
        Settings.gossip.PERIOD = 0.01
        Settings.gossip.MODELS_PERIOD = 0.1
        Settings.gossip.EXIT_ON_X_EQUAL_ROUNDS = 200
        Settings.gossip.MODELS_PER_ROUND = NODES
        logger.set_level("ERROR")
    nodes = [make_node(arguments.kind, rank) for rank in range(NODES)]
    for node in nodes:
        node.start()
    TopologyFactory.connect_nodes(TopologyFactory.generate_matrix(TopologyType.FULL, NODES), nodes)
    wait_convergence(nodes, NODES - 1, wait=60)
    nodes[0].set_start_learning(rounds=arguments.rounds, epochs=1, trainset_size=NODES)
    mark_rounds(nodes, arguments.rounds)
    while not all(node.learning_workflow.finished for node in nodes):  # the last evaluation
        time.sleep(0.005)
    trained = [node.learning_workflow.history.count("TrainStage") for node in nodes]
    if set(trained) != {arguments.rounds}:
        sys.exit(f"not all nodes trained in all {arguments.rounds} rounds, but in {trained}")
    for node in nodes:
        node.stop()


if __name__ == "__main__":
    main()
