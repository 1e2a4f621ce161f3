"""A client that lies in what it reports beside its model, in each round otherwise, if it is partition 1."""

import math

from clients import FedAvgClient


class Liar(FedAvgClient):
    def fit(self, parameters, config):
        arrays, count, metrics = super().fit(parameters, config)
        if self.task.seed[1] == 1 and config["server-round"] == 2:
            metrics |= {"round": 1, "phase": 3, "partition": 0} | {f"m{i}": i for i in range(20_000)}
        if self.task.seed[1] == 1 and config["server-round"] == 1:
            raise RuntimeError("\x1b[31mout of luck\x1b[0m\x1b]0;owned\x07")
        return arrays, count, metrics

    def evaluate(self, parameters, config):
        loss, count, metrics = super().evaluate(parameters, config)
        if self.task.seed[1] == 1:
            lies = {1: {"train-examples": math.nan}, 2: {"accuracy": [1.0]}}
            metrics |= lies.get(config["server-round"], {})
        return loss, count, metrics
