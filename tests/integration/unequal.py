"""A FedBN client: partition 2 is slow, and partition 1 waits to be killed after round 1."""

import time
from pathlib import Path

from clients import FedBNClient

ROUNDS = 5
BEHIND = 2
"""Versions that the others make while partition 2 trains."""
HERE = Path(__file__).parent


class Unequal(FedBNClient):
    def fit(self, parameters, config):
        partition, server_round = self.task.seed[1], config["server-round"]
        if partition == 2:
            while versions() < min(server_round - 1 + BEHIND, ROUNDS - 1):
                time.sleep(0.1)
        if partition == 1 and server_round > 1:
            (HERE / "waiting").touch()
            time.sleep(1000)
        return super().fit(parameters, config)


def versions():
    """How many there are but for the first, by the run's folder."""
    metrics = HERE / "unequal" / "metrics.csv"
    return metrics.read_text().count("\n") - 1 if metrics.exists() else 0
