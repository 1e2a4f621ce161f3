"""Flower's Krum, MultiKrum and Bulyan and ours: where they agree, and every difference in docs/drop-in.md."""

import inspect

import flwr.serverapp.strategy as flower
import numpy as np
import pytest

import strategies

from .scenarios import APIS, answer, assert_same, client, phase, plain, replies_of, run

ARGUMENTS = {
    "Krum": {"num_malicious_nodes": 1},
    "MultiKrum": {"num_malicious_nodes": 1, "num_nodes_to_select": 3},
    "Bulyan": {"num_malicious_nodes": 1},
}
EACH = pytest.mark.parametrize("rule", ARGUMENTS)
MODEL = {"w": np.array([[0.5, -1.0, 2.0]], np.float32), "b": np.array([0.1], np.float32)}
OFFSETS = (0.0, 0.1, 0.25, 0.45, 0.7, 1.0, 1.4, 2.1, 1e6)
"""What clients add: no two distances are the same, where rounding would decide. The ninth lies."""


def added(message, node):
    arrays = plain(message.content["arrays"])
    return answer(message, {name: array + np.float32(OFFSETS[node]) for name, array in arrays.items()}, 1)


def alike(message, node):
    """Clients of one example each."""
    training = message.metadata.message_type == "train"
    return added(message, node) if training else client(message, node)


def each(messages):
    return list(map(added, messages, range(5)))


@EACH
def test_the_order_of_the_arguments(rule):
    """Ours takes Flower's by position too; what is ours alone is after them."""
    theirs, ours = (list(inspect.signature(getattr(api, rule)).parameters.values()) for api in APIS)
    theirs = [one for one in theirs if one.name != "selection_rule"]
    assert [(o.name, o.default) for o in ours[: len(theirs)]] == [(o.name, o.default) for o in theirs]
    for api in APIS:
        made = getattr(api, rule)(0.5, 0.25, 3, 4, 5, 2)
        assert (made.min_available_nodes, made.num_malicious_nodes) == (5, 2)


@pytest.mark.parametrize(
    ("rule", "malicious"), [("Krum", 0), ("Krum", 1), ("MultiKrum", 0), ("MultiKrum", 2), ("Bulyan", 0)]
)
def test_rounds_of_flowers_loop(rule, malicious):
    """Nine clients with a liar, whom Bulyan for no liar would believe in both: it has eight."""

    def scenario(api):
        arguments = ARGUMENTS[rule] | {"num_malicious_nodes": malicious}
        nodes = 8 if rule == "Bulyan" else 9
        return run(getattr(api, rule)(**arguments), MODEL, rounds=3, nodes=nodes, work=alike)

    assert_same(*map(scenario, APIS))


@EACH
def test_the_model_after_replies(rule):
    for replies in replies_of(each).values():
        theirs, ours = (phase(getattr(api, rule)(), replies, MODEL, nodes=5)[0] for api in APIS)
        assert_same(theirs, ours)


# ---- differences ------------------------------------------------------------------------------------


def scalars(values, examples=lambda i: 1, **metrics):
    return lambda messages: [
        answer(
            m, {"w": np.full(1, values[i], np.float32)}, examples(i), **{n: v[i] for n, v in metrics.items()}
        )
        for i, m in enumerate(messages)
    ]


def result(strategy, values, **how):
    return phase(strategy, scalars(values, **how), {"w": np.zeros(1, np.float32)}, nodes=len(values))


def test_too_few_answers_for_krum():
    """Four answers withstand no liar: Flower's takes one of them."""
    values = (1.0, 2.0, 3.0, 50.0)
    found = [result(api.Krum(num_malicious_nodes=1), values)[0] for api in APIS]
    assert found[0] is not None
    assert found[1] is None
    found = [result(api.MultiKrum(num_nodes_to_select=9), values)[0] for api in APIS]
    assert found[0]["w"] == 14
    assert found[1] is None


def test_a_tie_goes_to_whose_next_neighbours_are_nearer():
    """1 and 1.25 are each other's only neighbour; Flower's takes the first."""
    theirs, ours = (result(api.Krum(), (1.0, 1.25, 1.75))[0]["w"] for api in APIS)
    assert (theirs, ours) == (1.0, 1.25)


@pytest.mark.parametrize("rule", ["Krum", "MultiKrum"])
def test_distances_are_between_parameters(rule):
    """By hand, the two nearest of 1 are 0 and 1.5, at 1 + 0.25, which nobody beats. With the variances the
    first is nearest, at 10^2 + 1.5^2 + 10^2 + 9^2: they differ by more."""
    model = {"w": np.zeros(1, np.float32), "bn.running_var": np.ones(1, np.float32)}
    values, variances = (0.0, 1.0, 1.5, 9.0), (20.0, 60.0, 10.0, 30.0)

    def replies(messages):
        return [
            answer(m, {"w": np.full(1, w, np.float32), "bn.running_var": np.full(1, v, np.float32)})
            for m, w, v in zip(messages, values, variances, strict=True)
        ]

    theirs, ours = (phase(getattr(api, rule)(), replies, model)[0] for api in APIS)
    assert (theirs["w"], theirs["bn.running_var"]) == (0.0, 20.0)
    assert (ours["w"], ours["bn.running_var"]) == (1.0, 60.0)


def test_multikrum_weighs_answers_alike():
    theirs, ours = (
        result(api.MultiKrum(num_nodes_to_select=2), (1.0, 2.0, 9.0), examples=lambda i: 1 + 2 * i)[0]["w"]
        for api in APIS
    )
    assert (theirs, ours) == (1.75, 1.5)


@EACH
def test_metrics_of_all_answers(rule):
    """Flower's are of the chosen answers."""
    values, loss = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 9.0), (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 8.0)
    theirs, ours = (result(getattr(api, rule)(num_malicious_nodes=1), values, loss=loss)[1] for api in APIS)
    assert (theirs["loss"], ours["loss"]) == (1.0, 2.0)


def test_bulyan_chooses_one_by_one():
    """Of 0, ..., 5, 1000 the paper's takes 1 to 5, one after the other by ever fewer neighbours, and the mean
    of the three middle ones. Flower's takes the five with the best scores at once: 0 and 5 have the same, and
    0 is earlier."""
    values = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1000.0)
    theirs, ours = (result(api.Bulyan(num_malicious_nodes=1), values)[0]["w"] for api in APIS)
    assert (theirs, ours) == (2.0, 3.0)


def test_bulyan_takes_no_other_selection_rule():
    own = lambda contents, malicious, selected: contents[:selected]  # noqa: E731
    flower.Bulyan(selection_rule=own)
    with pytest.raises(TypeError, match="Bulyan has no argument 'selection_rule'"):
        strategies.Bulyan(selection_rule=own)
