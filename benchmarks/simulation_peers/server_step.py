"""The server's step alone: FedYogi on ResNet-18's 11 million parameters and the answers of 10 clients.

The answers are messages made beforehand; timed is ``aggregate_train``, of this project's rule and of
Flower's in turn, in one process. Beside them stands a floor: the answers' bytes, copied on one
thread. Prints the seconds of all three.
"""

import json
import logging
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedYogi as FlowerFedYogi
from flwr.serverapp.strategy import Strategy
from torchvision.models import resnet18

from fedbn_flower.runtime.grid import FIRST_NODE_ID, identify_process
from strategies import FedYogi

CLIENTS = 10
REPETITIONS = 5


class ReplyGrid:
    """Nodes that answer at once, with what was made beforehand; it has what strategies call, and no more."""

    def __init__(self, answers: list[RecordDict]) -> None:
        self.answers = answers
        identify_process()

    def get_node_ids(self) -> Iterable[int]:
        return range(FIRST_NODE_ID, FIRST_NODE_ID + len(self.answers))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return [self.reply(message) for message in messages]

    def reply(self, message: Message) -> Message:
        partition = message.metadata.dst_node_id - FIRST_NODE_ID
        message.metadata.__dict__["_message_id"] = str(partition)  # as Flower's own grids set it
        content = self.answers[partition]
        if message.metadata.message_type.startswith(MessageType.QUERY):
            content = RecordDict({"partition": ConfigRecord({"partition-id": partition})})
        return Message(content, reply_to=message)


def make_answers(model: dict[str, np.ndarray]) -> Iterable[RecordDict]:
    """The clients' models: each the sent one, a little way off."""
    rng = np.random.default_rng(0)
    for _ in range(CLIENTS):
        moved = {
            name: entry + 0.01 * rng.standard_normal(entry.shape, np.float32)
            if entry.dtype == np.float32
            else entry
            for name, entry in model.items()
        }
        metrics = MetricRecord({"num-examples": 100, "train-loss": 1.0})
        yield RecordDict({"arrays": to_record(moved), "metrics": metrics})


def to_record(arrays: dict[str, np.ndarray]) -> ArrayRecord:
    """The arrays as they travel."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def seconds_of_round(strategy: Strategy, arrays: ArrayRecord, grid: ReplyGrid, server_round: int) -> float:
    """The duration of one ``aggregate_train``."""
    messages = strategy.configure_train(server_round, arrays, ConfigRecord(), cast(Grid, grid))
    replies = list(grid.send_and_receive(messages))
    started = time.perf_counter()
    updated, _ = strategy.aggregate_train(server_round, replies)
    seconds = time.perf_counter() - started
    if updated is None or len(replies) != CLIENTS:
        raise RuntimeError(f"{len(replies)} answers gave no model")
    return seconds


class Copy:
    """Every answer's bytes, copied to memory of its own that was there before."""

    def __init__(self, answers: list[RecordDict]) -> None:
        arrays = [array for answer in answers for array in answer.array_records["arrays"].values()]
        self.sources = [np.frombuffer(array.data, np.uint8) for array in arrays]
        self.places = [np.zeros_like(source) for source in self.sources]
        self.seconds()  # the first writing is what gives a place its memory

    def seconds(self) -> float:
        """The duration of one copy."""
        started = time.perf_counter()
        for place, source in zip(self.places, self.sources, strict=True):
            np.copyto(place, source)
        return time.perf_counter() - started


def main() -> None:
    """One warm-up round of each, then the timed ones, in turn."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    model = {name: entry.numpy() for name, entry in resnet18(num_classes=10).state_dict().items()}
    arrays, grid = to_record(model), ReplyGrid(list(make_answers(model)))
    rules: dict[str, Strategy] = {"Flower": FlowerFedYogi(), "fedbn-flower": FedYogi()}
    sides: dict[str, Callable[[int], float]] = {
        name: partial(seconds_of_round, rule, arrays, grid) for name, rule in rules.items()
    }
    copy = Copy(grid.answers)
    sides["copy"] = lambda _: copy.seconds()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for repetition in range(REPETITIONS + 1):
        for name, side in sides.items():
            taken = side(repetition + 1)
            if repetition:
                seconds[name].append(taken)
    print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
