"""Flower's QFedAvg and ours: where they agree, and every difference in docs/drop-in.md."""

import inspect

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.serverapp.exception import AggregationError

import strategies

from .scenarios import APIS, MODEL, answer, assert_same, client, phase, replies_of, run, trained

LR = 0.1
SETTINGS = [{}, {"q": 0.0}, {"q": 2.0}]


def make(api, **arguments):
    return api.QFedAvg(**{"client_learning_rate": LR, "train_loss_key": "loss"} | arguments)


def single(value):
    """With float32 for float64, to which Flower's promotes the model."""
    if isinstance(value, dict):
        return {key: single(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [single(one) for one in value]
    return np.asarray(value, np.float32) if getattr(value, "dtype", None) == np.float64 else value


def both(scenario):
    theirs, ours = (scenario(api) for api in APIS)
    assert_same(single(theirs), ours if isinstance(ours, dict) else list(ours))


def each(messages, **metrics):
    return [answer(m, trained(MODEL, i), i + 1, loss=0.5 + i, **metrics) for i, m in enumerate(messages)]


def test_the_order_of_the_arguments_and_their_defaults():
    theirs, ours = (list(inspect.signature(api.QFedAvg).parameters.values()) for api in APIS)
    same = ours[: len(theirs)]
    assert [(o.name, o.default, o.kind) for o in same] == [(o.name, o.default, o.kind) for o in theirs]
    for api in APIS:
        made = api.QFedAvg(0.2, 0.3, "f", 0.5, 0.25, 3, 4, 5)
        assert (made.client_learning_rate, made.q, made.train_loss_key) == (0.2, 0.3, "f")
        assert (made.fraction_train, made.min_train_nodes, made.min_available_nodes) == (0.5, 3, 5)
        with pytest.raises(TypeError, match="client_learning_rate"):
            api.QFedAvg()


@pytest.mark.parametrize("settings", SETTINGS)
def test_five_rounds_of_flowers_loop(settings):
    both(lambda api: run(make(api, **settings), rounds=5))


@pytest.mark.parametrize("settings", SETTINGS)
def test_replies(settings):
    for given in replies_of(each).values():
        both(lambda api, given=given: phase(make(api, **settings), given))


# ---- differences ------------------------------------------------------------------------------------


def test_train_messages_ask_for_the_loss():
    """A client of any app may answer by ``start-loss``; ours do."""

    def told(api):
        found = []

        def listening(message, node):
            found.append(set(message.content["config"]))
            return client(message, node)

        run(make(api), rounds=1, nodes=2, work=listening)
        return set().union(*found)

    assert told(strategies) - told(flower) == {"start-loss"}


def test_the_loss_before_training_goes_first():
    theirs, ours = (phase(make(api, q=2.0), lambda ms: each(ms, **{"start-loss": 1.0}))[0] for api in APIS)
    alone = phase(
        make(strategies, q=2.0), lambda ms: [answer(m, trained(MODEL, i), loss=1.0) for i, m in enumerate(ms)]
    )
    assert not np.allclose(theirs["w"], ours["w"])
    np.testing.assert_allclose(ours["w"], alone[0]["w"], rtol=1e-6)


def test_the_model_keeps_its_dtype():
    theirs, ours = (phase(make(api), each)[0]["w"].dtype for api in APIS)
    assert (theirs, ours) == (np.float64, np.float32)


@pytest.mark.parametrize("loss", [[0.5], -1.0])
def test_a_loss_that_is_none_costs_the_answer(loss):
    """Without a number Flower's run ends; of a negative one it makes NaN."""

    def replies(messages):
        bad = answer(messages[0], trained(MODEL, 0), 1, loss=loss)
        return [bad, *each(messages)[1:]]

    if loss != -1.0:
        with pytest.raises(AggregationError, match="Missing or invalid training loss"):
            phase(make(flower), replies)
    else:
        assert np.isnan(phase(make(flower), replies)[0]["w"]).any()
    ours = phase(make(strategies), replies)[0]
    expected = phase(make(strategies), lambda messages: each(messages)[1:])[0]
    np.testing.assert_array_equal(ours["w"], expected["w"])


def test_statistics_are_averaged():
    """Flower's steps a running variance with the weights, here to below 0, and counts it in the norm."""
    model = {"w": np.zeros(1, np.float32), "bn.running_var": np.full(1, 1.0, np.float32)}

    def replies(messages):
        return [
            answer(m, {"w": np.ones(1), "bn.running_var": np.full(1, v)}, loss=loss)
            for m, v, loss in zip(messages, (0.01, 9.0), (9.0, 0.01), strict=True)
        ]

    theirs, ours = (phase(make(api, q=1.0), replies, model, nodes=2)[0] for api in APIS)
    assert ours["bn.running_var"] == pytest.approx(4.505)
    assert theirs["bn.running_var"] != pytest.approx(4.505)
