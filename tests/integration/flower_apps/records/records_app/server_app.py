"""Metric functions that read more than the metrics."""

import json
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from .task import init_model

app = ServerApp()


def by_site(records, weight_key):
    """The gain of every site by its name, and the spread of the sites' models."""
    gains = {}
    for record in sorted(records, key=lambda one: one["about"]["partition"]):
        before, after = record["local-metrics"]["losses"]
        gains[record["about"]["site"]] = before - after
    weights = [record["local-model"]["weight"].numpy() for record in records]
    spread = float(max(one.max() for one in weights) - min(one.min() for one in weights))
    return MetricRecord({**gains, "spread": spread})


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = FedAvg(
        weighted_by_key="weight",
        arrayrecord_key="global-model",
        configrecord_key="train-config",
        train_metrics_aggr_fn=by_site,
        min_train_nodes=3,
        min_evaluate_nodes=3,
        min_available_nodes=3,
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord({key: Array(array) for key, array in init_model().items()}),
        train_config=ConfigRecord({"lr": config["learning-rate"]}),
        num_rounds=config["num-server-rounds"],
    )
    results = {
        "model": {key: array.numpy().tolist() for key, array in result.arrays.items()},
        "train": [dict(one) for one in result.train_metrics_clientapp.values()],
        "evaluate": [dict(one) for one in result.evaluate_metrics_clientapp.values()],
    }
    Path(config["out"]).write_text(json.dumps(results))
