"""A strategy of one's own, on top of Flower's FedAvg."""

import json
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from .task import init_model

app = ServerApp()


class BestOfSchedule(FedAvg):
    """Halves the clients' learning rate every round, and keeps the model of the lowest loss."""

    def __init__(self, *args, decay=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.decay = decay
        self.best = float("inf")
        self.model = None
        self.history = []

    def configure_train(self, server_round, arrays, config, grid):
        if server_round > 1:
            config["lr"] = config["lr"] * self.decay
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        arrays, metrics = super().aggregate_train(server_round, replies)
        worst = max(reply.content["metrics"]["train_loss"] for reply in replies)
        if metrics["train_loss"] < self.best:
            self.best, self.model = metrics["train_loss"], arrays
        metrics["worst_loss"] = worst
        self.history.append([server_round, len(replies), worst])
        return arrays, metrics


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = BestOfSchedule(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3, decay=0.5)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord({key: Array(array) for key, array in init_model().items()}),
        train_config=ConfigRecord({"lr": config["learning-rate"]}),
        num_rounds=config["num-server-rounds"],
    )
    results = {
        "model": {key: array.numpy().tolist() for key, array in result.arrays.items()},
        "best model": {key: array.numpy().tolist() for key, array in strategy.model.items()},
        "best": strategy.best,
        "history": strategy.history,
        "train": [dict(one) for one in result.train_metrics_clientapp.values()],
        "evaluate": [dict(one) for one in result.evaluate_metrics_clientapp.values()],
    }
    Path(config["out"]).write_text(json.dumps(results))
