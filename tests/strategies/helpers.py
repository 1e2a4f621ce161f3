"""A Grid of canned answers, and messages written by hand."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedbn_flower.runtime.grid import LocalGrid

Arrays = Mapping[str, NDArray]
Client = Callable[[Message, int], Message]


def record(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def ndarrays(arrays: ArrayRecord) -> dict[str, NDArray]:
    return {name: array.numpy() for name, array in arrays.items()}


def train_reply(message: Message, arrays: Arrays, num_examples: float = 1, **metrics: float) -> Message:
    """An answer that suits any rule: five local steps, and a control variate that did not change."""
    metrics = {"num-examples": num_examples, "local-steps": 5} | metrics
    content = RecordDict({"arrays": record(arrays), "metrics": MetricRecord(metrics)})
    if message.has_content() and (control := message.content.array_records.get("control")):
        content["control"] = record({n: np.zeros_like(a) for n, a in ndarrays(control).items()})
    return Message(content, reply_to=message)


class CannedGrid(LocalGrid):
    """Nodes 0, 1, ... answer by a function of (message, node); asked, node i tells the partition i.

    ``order`` permutes the answers.
    """

    def __init__(self, num_clients: int, client: Client, tells_partition: bool = True) -> None:
        super().__init__(num_clients, {})
        self.client = client
        self.tells_partition = tells_partition
        self.order: Callable[[list[Message]], Iterable[Message]] = lambda replies: replies

    def work(self, messages, timeout):
        replies = []
        for message in messages:
            partition = message.metadata.dst_node_id
            if message.metadata.message_type.startswith("query"):
                if self.tells_partition:
                    answer = RecordDict({"partition": ConfigRecord({"partition-id": partition})})
                    replies.append(Message(answer, reply_to=message))
            elif (reply := self.client(message, partition)) is not None:
                replies.append(reply)
        return iter(replies)

    def get_node_ids(self):
        return range(self.num_clients)

    def client_state(self, partition_id):
        return b""

    def restore_client(self, partition_id, state):
        raise AssertionError("canned clients remember nothing")

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        replies = list(super().send_and_receive(messages, timeout=timeout))
        asked = any(m.metadata.message_type.startswith("query") for m in messages)
        return replies if asked else self.order(replies)


def one_round(strategy, arrays: Arrays, models: list[Arrays], weights: list[float], server_round: int = 1):
    """One train phase through the strategy's own protocol; the next model, or None."""
    grid = CannedGrid(len(models), lambda m, i: train_reply(m, models[i], weights[i]))
    messages = strategy.configure_train(server_round, record(arrays), ConfigRecord(), grid)
    updated, _ = strategy.aggregate_train(server_round, grid.send_and_receive(messages))
    return None if updated is None else ndarrays(updated)
