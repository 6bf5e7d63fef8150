"""The job as a plain loop: what the training and averaging cost when nothing is around them."""

import argparse

import torch
from digits_job import NODES, accuracy, make_model, make_optimiser, mark, shard, test_set, train


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, required=True)
    rounds = parser.parse_args().rounds
    shards, (test_x, test_y) = [shard(node) for node in range(NODES)], test_set()
    models = [make_model() for _ in range(NODES)]
    optimisers = [make_optimiser(model) for model in models]
    for round in range(1, rounds + 1):
        for model, optimiser, (x, y) in zip(models, optimisers, shards, strict=True):
            train(model, optimiser, x, y)
        with torch.no_grad():
            for group in zip(*(model.parameters() for model in models), strict=True):
                mean = torch.stack(group).mean(0)
                for parameter in group:
                    parameter.copy_(mean)
        mark(round, accuracy(models[0], test_x, test_y))


if __name__ == "__main__":
    main()
