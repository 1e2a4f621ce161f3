"""The server of the quickstart; it runs one strategy after the other."""

import json
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdagrad, FedAvg, FedAvgM

from .task import init_model, load_data, loss

app = ServerApp()
ALL = {"min_train_nodes": 3, "min_evaluate_nodes": 3, "min_available_nodes": 3}
"""Whoever starts before all SuperNodes have come would have fewer of them in the first round."""


def central_loss(server_round, arrays):
    model = {name: array.numpy() for name, array in arrays.items()}
    return MetricRecord({"loss": loss(model, *load_data(99))})


def make(name):
    if name == "FedAvgM":
        return FedAvgM(**ALL, fraction_train=1.0, server_learning_rate=0.9, server_momentum=0.5)
    if name == "FedAdagrad":
        return FedAdagrad(**ALL, fraction_train=1.0, eta=0.1, tau=0.01)
    return FedAvg(**ALL, fraction_train=1.0)


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, results = context.run_config, {}
    for name in config["strategies"].split(","):
        result = make(name).start(
            grid=grid,
            initial_arrays=ArrayRecord({key: Array(array) for key, array in init_model().items()}),
            train_config=ConfigRecord({"lr": config["learning-rate"]}),
            num_rounds=config["num-server-rounds"],
            evaluate_fn=central_loss,
        )
        results[name] = {
            "model": {key: array.numpy().tolist() for key, array in result.arrays.items()},
            "train": [dict(one) for one in result.train_metrics_clientapp.values()],
            "evaluate": [dict(one) for one in result.evaluate_metrics_clientapp.values()],
            "central": [dict(one) for one in result.evaluate_metrics_serverapp.values()],
        }
    Path(config["out"]).write_text(json.dumps(results))
