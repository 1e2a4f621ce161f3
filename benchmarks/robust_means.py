"""CPU seconds of the means of 100 answers of 1.6 million parameters, and ratios to the weighted mean.

    OMP_NUM_THREADS=1 python benchmarks/robust_means.py

A mean is timed from the first answer that is read to the next model. The means take turns in every
repetition, and a ratio is taken within a repetition; printed are medians, with the smallest and largest.
"""

import argparse
import logging
import time
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedbn_flower.core.private import set_message_id
from fedbn_flower.runtime.grid import identify_process
from fedbn_flower.strategies import FedAvg
from fedbn_flower.strategies.messages.npy import encoded

SHAPES = {"conv-1": (32, 25), "conv-2": (64, 800), "dense-1": (512, 3136), "dense-2": (10, 512)}
"""The CNN of McMahan et al. 2017 for MNIST, without its biases."""
MEANS = (
    "weighted", "median", "krum:20", "multi-krum:20,60", "bulyan:20", "geometric-median", "centered-clip:1",
)  # fmt: skip
Model = Mapping[str, NDArray[np.float32]]


class Nodes:
    """As much of a Grid as a rule needs to address nodes."""

    def __init__(self, number: int) -> None:
        self.number = number

    def get_node_ids(self) -> list[int]:
        """Return the nodes."""
        return list(range(1, self.number + 1))


def record(model: Model) -> ArrayRecord:
    """Return a model as messages carry it."""
    return ArrayRecord({name: encoded(array) for name, array in model.items()})


def seconds(mean: str, sent: Model, answers: Sequence[ArrayRecord]) -> float:
    """Return the CPU seconds that a round's answers take."""
    rule = FedAvg(mean=mean)
    messages = list(rule.configure_train(1, record(sent), ConfigRecord(), Nodes(len(answers))))  # type: ignore[arg-type]
    replies = []
    for number, (message, answer) in enumerate(zip(messages, answers, strict=True)):
        set_message_id(message, f"message-{number}")
        content = RecordDict({"arrays": answer, "metrics": MetricRecord({"num-examples": 100})})
        replies.append(Message(content, reply_to=message))
    began = time.process_time()
    updated, _ = rule.aggregate_train(1, replies)
    took = time.process_time() - began
    assert updated
    return took


def main() -> None:
    """Time all means and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--answers", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    identify_process()
    logging.disable()
    rng = np.random.default_rng(0)
    sent = {name: rng.standard_normal(shape, np.float32) for name, shape in SHAPES.items()}
    common = {name: 0.01 * rng.standard_normal(shape, np.float32) for name, shape in SHAPES.items()}
    answers = [
        record({n: x + common[n] + 0.01 * rng.standard_normal(x.shape, np.float32) for n, x in sent.items()})
        for _ in range(options.answers)
    ]
    took = [{mean: seconds(mean, sent, answers) for mean in MEANS} for _ in range(options.repetitions + 1)][
        1:
    ]
    print("| mean | CPU seconds | times the weighted mean's |")
    print("| --- | --- | --- |")
    for mean in MEANS:
        ratios = [one[mean] / one["weighted"] for one in took]
        own = median(one[mean] for one in took)
        print(f"| {mean} | {own:.2f} | {median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f}) |")


if __name__ == "__main__":
    main()
