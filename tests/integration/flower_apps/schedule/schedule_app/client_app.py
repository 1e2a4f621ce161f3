"""A plain client."""

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from .task import load_data, loss, train

app = ClientApp()


@app.train()
def train_fn(msg: Message, context: Context):
    model = {name: array.numpy() for name, array in msg.content["arrays"].items()}
    x, y = load_data(context.node_config["partition-id"])
    model = train(model, x, y, msg.content["config"]["lr"])
    content = RecordDict(
        {
            "arrays": ArrayRecord({name: Array(array) for name, array in model.items()}),
            "metrics": MetricRecord({"train_loss": loss(model, x, y), "num-examples": len(y)}),
        }
    )
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate_fn(msg: Message, context: Context):
    model = {name: array.numpy() for name, array in msg.content["arrays"].items()}
    x, y = load_data(context.node_config["partition-id"])
    metrics = MetricRecord({"eval_loss": loss(model, x, y), "num-examples": len(y)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
