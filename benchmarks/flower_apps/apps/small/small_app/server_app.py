"""FedAvg of a vector."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all clients in every round."""
    arrays = ArrayRecord([np.zeros(context.run_config["values"], np.float32)])
    rounds = context.run_config["num-server-rounds"]
    FedAvg().start(grid, arrays, num_rounds=rounds)
