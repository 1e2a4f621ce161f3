"""What both of two classes of one name are put through: canned clients, rounds, and a comparison.

A scenario is a function of ``api``, which is `flwr.serverapp.strategy` or `strategies`.
"""

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

import strategies

from ...quick import some_quick
from ..helpers import CannedGrid, ndarrays, record

MODEL = {
    "w": np.array([[0.5, -1.0, 2.0], [1.5, 0.0, -0.25]], np.float32),
    "b": np.array([0.1, 0.2], np.float32),
    "temperature": np.array(1.0, np.float32),
}

RULES = {  # the arguments with which Flower's class and ours promise the same numbers
    "FedAvg": {},
    "FedAvgM": {"server_learning_rate": 0.7, "server_momentum": 0.5},
    "FedAdagrad": {"eta": 0.1},
    "FedYogi": {"eta": 0.05, "beta_1": 0.8, "beta_2": 0.9, "tau": 1e-2},
    "FedProx": {"proximal_mu": 0.1},
    "FedMedian": {},
    "FedTrimmedAvg": {"beta": 0.25},
}
EACH_RULE = pytest.mark.parametrize("rule", some_quick([*RULES], range(0, len(RULES), 3)))
APIS = (flower, strategies)
MEANS = ["FedAvg", "FedProx", "FedMedian", "FedTrimmedAvg"]  # of the answers, whatever was sent


def make(api, rule, **arguments):
    """The rule; ours without the bias correction that Flower's FedYogi does not have."""
    ours = {"bias_correction": False} if rule == "FedYogi" and api is not flower else {}
    return getattr(api, rule)(**RULES[rule], **ours, **arguments)


def trained(arrays, node, server_round=1):
    """What node's client makes of the model: hand-sized, and different for every node and round.

    No entry stays where it was: an adaptive rule makes eta / tau times as much of what rounding is left then.
    """
    pull = 0.05 * (node + 1)
    return {
        name: (array * (1 - pull) + 6 * pull * server_round).astype(array.dtype)
        for name, array in arrays.items()
    }


def answer(message, arrays=None, examples=1, **metrics):
    """A reply with these arrays and metrics."""
    content = RecordDict({"metrics": MetricRecord({"num-examples": examples} | metrics)})
    if arrays is not None:
        content["arrays"] = record(arrays)
    return Message(content, reply_to=message)


def client(message, node):
    """Node i has i + 1 examples; it trains by `trained` and tells its loss and two accuracies."""
    config = message.content["config"]
    if message.metadata.message_type == "evaluate":
        total = float(sum(array.sum() for array in ndarrays(message.content["arrays"]).values()))
        return answer(message, None, 2 * (node + 1), loss=total + node, accuracies=[0.5, 0.1 * node])
    arrays = trained(ndarrays(message.content["arrays"]), node, config["server-round"])
    return answer(message, arrays, node + 1, loss=1.0 / (node + 1), steps=3 + node)


def run(strategy, arrays=MODEL, rounds=2, nodes=4, work=client, **start):
    """A run under Flower's own loop; everything that it gives."""
    grid = CannedGrid(nodes, work, tells_partition=False)
    result = strategy.start(grid, record(arrays), rounds, **start)
    return plain(vars(result))


def phase(strategy, replies, arrays=MODEL, server_round=1, nodes=4):
    """One train phase whose replies are ``replies(messages)``."""
    grid = CannedGrid(nodes, client, tells_partition=False)
    messages = list(strategy.configure_train(server_round, record(arrays), ConfigRecord(), grid))
    grid.send_and_receive(messages)
    return plain(strategy.aggregate_train(server_round, replies(messages)))


def mocks(values, examples=None, name="0"):
    """Replies made by hand that answer nothing which was sent."""
    replies = []
    for node, value in enumerate(values):
        message = Message(RecordDict(), dst_node_id=node + 1, message_type="train")
        examples_of_it = 1 if examples is None else examples[node]
        replies.append(answer(message, {name: np.asarray(value)}, examples_of_it))
    return replies


def failed(message, reason="broken"):
    return Message(Error(8, reason), reply_to=message)


def replies_of(each):
    """What may become of the answers that ``each(messages)`` gives, by name."""
    return {
        "every answer": each,
        "some errors": lambda messages: [failed(messages[0]), *each(messages)[1:]],
        "all errors": lambda messages: [failed(message) for message in messages],
        "none": lambda messages: [],
        "a generator": lambda messages: iter(each(messages)),
        "in another order": lambda messages: [each(messages)[i] for i in (2, 0, 3, 1)],
    }


def plain(value):
    """Records as dictionaries and arrays."""
    if isinstance(value, ArrayRecord):
        return ndarrays(value)
    if isinstance(value, Array):
        return value.numpy()
    if isinstance(value, dict | MetricRecord | ConfigRecord):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def assert_same(theirs, ours, where="result"):
    """Equal names, shapes and dtypes; numbers to 1e-6."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict), where
        assert list(theirs) == list(ours), where
        for key, value in theirs.items():
            assert_same(value, ours[key], f"{where}[{key!r}]")
    elif isinstance(theirs, list | tuple):
        assert isinstance(ours, list | tuple), where
        assert len(theirs) == len(ours), where
        for i, value in enumerate(theirs):
            assert_same(value, ours[i], f"{where}[{i}]")
    elif isinstance(theirs, np.ndarray):
        assert (theirs.shape, theirs.dtype) == (ours.shape, ours.dtype), where
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6, err_msg=where)
    elif isinstance(theirs, float):
        assert isinstance(ours, float), where
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6, err_msg=where)
    else:
        assert theirs == ours, where


def both(scenario):
    """What the scenario gives with Flower's classes is what it gives with ours."""
    assert_same(*map(scenario, APIS))


def both_raise(exception, scenario):
    for api in APIS:
        with pytest.raises(exception):
            scenario(api)
