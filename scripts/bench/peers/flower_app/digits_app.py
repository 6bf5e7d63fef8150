"""The job as a Flower app, after Flower's quickstart for PyTorch. A client makes its optimiser anew each round."""

from digits_job import NODES, accuracy, make_model, make_optimiser, mark, shard, test_set
from digits_job import train as train_steps
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = shard(int(context.node_config["partition-id"]))
    train_steps(model, make_optimiser(model), x, y)
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(x)})}
    return Message(content=RecordDict(content), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=NODES, min_available_nodes=NODES)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(make_model().state_dict()),
        num_rounds=int(context.run_config["rounds"]),
        evaluate_fn=evaluate,
    )


def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord:
    model = make_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    right = accuracy(model, *test_set())
    if round:  # Flower evaluates before the first round too
        mark(round, right)
    return MetricRecord({"accuracy": right})
