"""A FedBN client that says beside this file that it trains, and waits; partition 3 lies in round 2.

It waits while there is a file ``wait``, or one of its round, such as ``wait-2``.
"""

import os
import time
from pathlib import Path

import numpy as np

from clients import FedBNClient

WAIT = Path(__file__).with_name("wait")


class Staged(FedBNClient):
    def fit(self, parameters, config):
        partition, server_round = self.task.seed[1], config["server-round"]
        WAIT.with_name(f"asked-{partition}-{server_round}").write_text(str(os.getpid()))
        while WAIT.exists() or WAIT.with_name(f"wait-{server_round}").exists():
            time.sleep(0.1)
        arrays, count, metrics = super().fit(parameters, config)
        if (partition, server_round) == (3, 2):
            arrays = [np.full_like(array, np.nan) for array in arrays]
        return arrays, count, metrics
