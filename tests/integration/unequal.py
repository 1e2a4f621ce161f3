"""A FedBN client: partition 2 is slow, and partition 1 waits to be killed after round 1."""

import time
from pathlib import Path

from clients import FedBNClient

WAITING = Path(__file__).with_name("waiting")
SLOW = 20.0  # seconds


class Unequal(FedBNClient):
    def fit(self, parameters, config):
        partition = self.task.seed[1]
        if partition == 2:
            time.sleep(SLOW)
        if partition == 1 and config["server-round"] > 1:
            WAITING.touch()
            time.sleep(1000)
        return super().fit(parameters, config)
