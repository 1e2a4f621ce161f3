"""A client that adds its number."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Add the partition's number."""
    (array,) = message.content["arrays"].to_numpy_ndarrays()
    metrics = MetricRecord({"num-examples": 1, "number": context.node_config["partition-id"]})
    arrays = ArrayRecord([array + context.node_config["partition-id"]])
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Report the first value."""
    (array,) = message.content["arrays"].to_numpy_ndarrays()
    metrics = MetricRecord({"num-examples": 1, "first": float(array[0])})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
