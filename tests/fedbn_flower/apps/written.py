"""Small Flower apps, in the forms of its examples."""

import textwrap

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

PROJECT = """
[project]
name = "small-app"
version = "1.0.0"

[tool.flwr.app]
publisher = "nobody"

[tool.flwr.app.components]
serverapp = "{server}"
clientapp = "{client}"

[tool.flwr.app.config]
num-server-rounds = 2
lr = 0.5
name = "plain"
flag = false
out = ""
nested.depth = 3
"""

SERVER = """
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
import numpy as np

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    result = FedAvg().start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros(2)]),
        train_config=ConfigRecord({"lr": context.run_config["lr"]}),
        num_rounds=context.run_config["num-server-rounds"],
    )
"""

CLIENT = """
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    weights = weights + message.content["config"]["lr"] * (1 + context.node_config["partition-id"])
    metrics = MetricRecord({"loss": float(weights.sum()), "num-examples": 1})
    content = RecordDict({"arrays": ArrayRecord([weights]), "metrics": metrics})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    metrics = MetricRecord({"accuracy": float(weights[0]), "num-examples": 1})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
"""

IMPORTS = SERVER.partition("app = ")[0] + "from flwr.clientapp import ClientApp\nimport random, time\n"

LEGACY_SERVER = """
from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp
import numpy as np


def mean(metrics):
    total = sum(n for n, _ in metrics)
    return {"seen": sum(n * one["seen"] for n, one in metrics) / total}


def server_fn(context: Context):
    strategy = FedAvg(
        initial_parameters=ndarrays_to_parameters([np.zeros(2)]),
        fit_metrics_aggregation_fn=mean,
        evaluate_fn=lambda server_round, arrays, config: (float(arrays[0][0]), {"round": server_round}),
    )
    config = ServerConfig(num_rounds=context.run_config["num-server-rounds"], round_timeout=60)
    return ServerAppComponents(strategy=strategy, config=config)


app = ServerApp(server_fn=server_fn)
"""

LEGACY_CLIENT = """
from flwr.app import Context, ConfigRecord
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp


class Client(NumPyClient):
    def __init__(self, context):
        self.context = context
        self.place = context.node_config["partition-id"]

    def fit(self, parameters, config):
        counts = self.context.state.config_records.setdefault("counts", ConfigRecord({"fits": 0}))
        counts["fits"] += 1
        return [parameters[0] + 1 + self.place], 1 + self.place, {"seen": counts["fits"]}

    def evaluate(self, parameters, config):
        return float(parameters[0][0]), 1, {}


def client_fn(context: Context):
    return Client(context).to_client()


app = ClientApp(client_fn)
"""


def write_app(folder, server=SERVER, client=CLIENT, package="small_app"):
    """Write an app into a folder, its components in a package."""
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").touch()
    (folder / package / "server_app.py").write_text(textwrap.dedent(server))
    (folder / package / "client_app.py").write_text(textwrap.dedent(client))
    project = PROJECT.format(server=f"{package}.server_app:app", client=f"{package}.client_app:app")
    (folder / "pyproject.toml").write_text(project)
    return folder


def echo():
    app = ClientApp()
    for kind in (app.train, app.evaluate, app.query):
        kind()(lambda message, context: Message(message.content, reply_to=message))
    return app


def ask(grid, kind="train", nodes=None, timeout=None, ttl=None, **values):
    content = RecordDict({"config": ConfigRecord(values)})
    nodes = grid.get_node_ids() if nodes is None else nodes
    messages = [Message(content, node, kind, ttl=ttl) for node in nodes]
    return grid.send_and_receive(messages, timeout=timeout)
