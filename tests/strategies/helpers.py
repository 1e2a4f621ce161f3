"""A Grid of canned answers, and messages written by hand."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

from clients import FedAvgClient, Received
from strategies import STRATEGIES


class QFedAvg(STRATEGIES["qfedavg"]):
    """With the learning rate of the clients, which has no default."""

    client_learning_rate = 0.1
    reads_extras_anywhere = True
    read_extras = STRATEGIES["qfedavg"].read_extras


OF_RECORDS = {"fedproto", "fedsat", "fedadmm", "fedsmoo", "afl", "feddisco", "mimelite", "mime", "fedtan"}
OF_MODELS = {
    name: rule for name, rule in STRATEGIES.items() if name not in OF_RECORDS and not rule.keeps_models
} | {"qfedavg": QFedAvg}
"""The rules for which an answer is a model and numbers; the others' have tests of their own."""
Arrays = Mapping[str, NDArray]
Client = Callable[[Message, int], Message]
MODEL: Arrays = {
    "layer.weight": np.ones((2, 3), np.float32),
    "downsample.1.weight": np.ones(3, np.float32),
    "downsample.1.running_mean": np.zeros(3, np.float32),
    "downsample.1.running_var": np.ones(3, np.float32),
    "downsample.1.num_batches_tracked": np.array(10, np.int64),
}

# Message asks Flower for the identity of its process, which it has no public call to set.
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, SUPERLINK_NODE_ID, 1


def moved(amount: float, batches: int = 20) -> dict[str, NDArray]:
    """`MODEL` after training that adds the amount to every entry and counts so many batches."""
    new = {name: array + np.asarray(amount, array.dtype) for name, array in MODEL.items() if array.ndim}
    return new | {"downsample.1.num_batches_tracked": np.array(batches, np.int64)}


def record(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def ndarrays(arrays: ArrayRecord) -> dict[str, NDArray]:
    return {name: array.numpy() for name, array in arrays.items()}


def train_reply(message: Message, arrays: Arrays, num_examples: float = 1, **metrics: float) -> Message:
    """An answer that suits any rule: five local steps, and no change of what travels beside the model."""
    metrics = {"num-examples": num_examples, "local-steps": 5} | metrics
    if message.has_content() and message.content.config_records["config"].get("start-loss"):
        metrics = {"start-loss": 0.5} | metrics
    if message.has_content() and "momentum" in message.content:
        metrics = {"local-length": 1.0} | metrics
    content = RecordDict({"arrays": record(arrays), "metrics": MetricRecord(metrics)})
    for name in ("control", "perturbation"):
        if message.has_content() and (further := message.content.array_records.get(name)):
            content[name] = record({n: np.zeros_like(a) for n, a in ndarrays(further).items()})
    return Message(content, reply_to=message)


def answered(message: Message, client: FedAvgClient, told: Mapping[str, object]) -> Message:
    """What an app's client replies: model, records and metrics, or what is asked for before training."""
    received = {name: ndarrays(arrays) for name, arrays in message.content.array_records.items()}
    given = Received(received.pop("arrays"), received)
    config, metrics = {**message.content["config"], **told}, {"num-examples": client.task.size}
    if message.metadata.message_type == "train":
        update = client.fit(given, config)
        records, metrics = {"arrays": update.arrays.by_name(), **update.records}, update.metrics | metrics
    else:
        records = client.first_answer(given, config)
    content = {name: record(arrays) for name, arrays in records.items()} | {"metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)


class CannedGrid(Grid):
    """Nodes 0, 1, ... answer by a function of (message, node); asked, node i tells the partition i.

    ``order`` permutes the answers; one that is None never comes. ``timeouts`` are those it was given.
    """

    def __init__(self, num_clients: int, client: Client, tells_partition: bool = True) -> None:
        self.num_clients = num_clients
        self.client = client
        self.tells_partition = tells_partition
        self.order: Callable[[list[Message]], Iterable[Message]] = lambda replies: replies
        self.timeouts: list[float | None] = []
        self._ids = count()

    def work(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        """The answers, in any order."""
        for message in messages:
            partition = message.metadata.dst_node_id
            if message.metadata.message_type.startswith("query"):
                if self.tells_partition:
                    answer = RecordDict({"partition": ConfigRecord({"partition-id": partition})})
                    yield Message(answer, reply_to=message)
            elif (reply := self.client(message, partition)) is not None:
                yield reply

    def get_node_ids(self):
        return range(self.num_clients)

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        self.timeouts.append(timeout)
        for message in messages:  # as Flower's own grids set it
            message.metadata.__dict__["_message_id"] = f"message-{next(self._ids)}"
        replies = list(self.work(messages, timeout))
        asked = any(m.metadata.message_type.startswith("query") for m in messages)
        return replies if asked else self.order(replies)

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        return Run.create_empty(1)

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError


def train(strategy, arrays: Arrays | ArrayRecord, grid: Grid, server_round: int = 1):
    """One train phase through the strategy's own protocol: the next model, or None, and the metrics."""
    sent = arrays if isinstance(arrays, ArrayRecord) else record(arrays)
    messages = strategy.configure_train(server_round, sent, ConfigRecord(), grid)
    return strategy.aggregate_train(server_round, grid.send_and_receive(messages))


def one_round(strategy, arrays: Arrays, models, weights, server_round: int = 1, metrics=None, records=None):
    """The next model of a train phase in which client i answers with a model, a weight and more, or None."""

    def client(message: Message, i: int) -> Message:
        reply = train_reply(message, models[i], weights[i], **(metrics[i] if metrics else {}))
        reply.content.update(records[i] if records else {})
        return reply

    updated, _ = train(strategy, arrays, CannedGrid(len(models), client), server_round)
    return None if updated is None else ndarrays(updated)
