"""The Flower ClientApp: the one place that knows both Messages and NumPyClients."""

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import NDArrays, Scalar

from clients import CLIENTS, ClientState, FedAvgClient

from .config import RunConfig
from .task import local_task

app = ClientApp()


def partition_id_of(context: Context) -> int:
    """The node's ``partition-id``; a node that has only its own data may leave it out."""
    return int(context.node_config.get("partition-id", 0))


def _client(context: Context) -> tuple[FedAvgClient, ClientState]:
    config = RunConfig.of(context.run_config)
    state = ClientState(context.state)
    task = local_task(config, partition_id_of(context), context.node_config)
    return CLIENTS[config.client](task, state), state


def _received(client: FedAvgClient, message: Message) -> NDArrays:
    record = message.content.array_records["arrays"]
    if record.keys() != set(client.shared_names):
        raise ValueError(f"the model came with {sorted(record.keys() ^ set(client.shared_names))} amiss")
    return [record[name].numpy() for name in client.shared_names]


def _config(message: Message) -> dict[str, Scalar]:
    return {k: v for k, v in message.content.config_records["config"].items() if not isinstance(v, list)}


def _metrics(metrics: dict[str, Scalar]) -> MetricRecord:
    """Flower's MetricRecord takes int and float only: not bool, np.float32 or str."""
    return MetricRecord({k: v if type(v) is int else float(v) for k, v in metrics.items()})


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the received model; the client's memory changes only if all went well."""
    client, state = _client(context)
    if control := message.content.array_records.get("control"):
        client.received_control = {name: array.numpy() for name, array in control.items()}
    parameters, num_examples, metrics = client.fit(_received(client, message), _config(message))
    named = zip(client.shared_names, parameters, strict=True)
    reply = RecordDict(
        {
            "arrays": ArrayRecord({name: Array(array) for name, array in named}),
            "metrics": _metrics({"num-examples": num_examples, **metrics}),
        }
    )
    if client.sent_control is not None:
        reply["control"] = ArrayRecord({n: Array(array) for n, array in client.sent_control.items()})
    state.commit()
    return Message(reply, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the received model."""
    client, _ = _client(context)
    loss, num_examples, metrics = client.evaluate(_received(client, message), _config(message))
    record = _metrics({"num-examples": num_examples, "loss": loss, **metrics})
    return Message(RecordDict({"metrics": record}), reply_to=message)


@app.query("partition_id")
def query_partition_id(message: Message, context: Context) -> Message:
    """Tell which partition this node holds, so that the strategy can order nodes by it."""
    record = ConfigRecord({"partition-id": partition_id_of(context)})
    return Message(RecordDict({"partition": record}), reply_to=message)
