"""A client that sends a ConfigRecord beside the model, and its metrics under a name of its own."""

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from .task import load_data, loss, train

app = ClientApp()


@app.train()
def train_fn(msg: Message, context: Context):
    model = {name: array.numpy() for name, array in msg.content["global-model"].items()}
    partition_id = context.node_config["partition-id"]
    x, y = load_data(partition_id)
    before = loss(model, x, y)
    model = train(model, x, y, msg.content["train-config"]["lr"])
    content = RecordDict(
        {
            "local-model": ArrayRecord({name: Array(array) for name, array in model.items()}),
            "local-metrics": MetricRecord({"losses": [before, loss(model, x, y)], "weight": len(y) / 10}),
            "about": ConfigRecord({"site": f"site-{partition_id}", "partition": partition_id}),
        }
    )
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate_fn(msg: Message, context: Context):
    model = {name: array.numpy() for name, array in msg.content["global-model"].items()}
    x, y = load_data(context.node_config["partition-id"])
    metrics = MetricRecord({"losses": [loss(model, x, y)], "weight": len(y) / 10})
    return Message(content=RecordDict({"local-metrics": metrics}), reply_to=msg)
