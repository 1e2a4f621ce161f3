"""What rules take from an answer beside the model: liars are refused, whoever answers first."""

import math

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict

from strategies import FedNova, FedProto, FedSat
from strategies.aggregation.fold import PartialSum
from strategies.aggregation.vectors import Layout
from strategies.messages.validation import Answer

from ..helpers import one_round, record
from ..rules.test_by_class import ANY, ONE_CLASS, a_round, prototypes


def scalar_round(rule, *answers):
    """The model after a round from 0, in which each client moves it by (update, examples, metrics); and whom
    the rule refused."""
    updates, examples, metrics = zip(*answers, strict=True)
    models = [{"w": np.full(1, update, np.float32)} for update in updates]
    got = one_round(rule, {"w": np.zeros(1, np.float32)}, models, examples, metrics=metrics)
    return got and float(got["w"][0]), rule.phase_report.failures


def test_a_norm_that_no_training_has_is_refused():
    """Whoever says it, first or not; the honest client alone moves the model."""
    for clip in [0.0, 1.0]:
        for norm in [1e-300, 1e-9, 0.09, 1e300, math.nan, math.inf, -1, [3.0]]:
            honest, lie = (0.25, 12, {}), (0.5, 6, {"local-norm": norm})
            for liar, answers in enumerate(((lie, honest), (honest, lie))):
                rule = FedNova(**ANY, clip_update_norm=clip, local_epochs=2, batch_size=4)
                x, refused = scalar_round(rule, *answers)
                assert x == pytest.approx(0.25)
                assert refused.keys() == {liar}


STEPS = [
    (6, {"local-steps": 4}, True),  # two passes of two batches
    (6, {"local-steps": 5}, False),
    (6, {"local-steps": 2**40}, False),
    (4, {"local-steps": 3}, False),
    (6, {"local-norm": 8.0}, True),  # 4 / (1 - rho)
    (6, {"local-norm": 8.1}, False),
    (101, {"local-steps": 2}, False),  # more examples than are believed
]


def test_a_client_does_no_more_steps_than_its_examples_have():
    for examples, metrics, fits in STEPS:
        rule = FedNova(
            **ANY, client_momentum=0.5, local_epochs=2, batch_size=4, max_weight=100, weighted_by_key=None
        )
        _, refused = scalar_round(rule, (0.25, examples, metrics), (0.25, 12, {}))
        assert refused.keys() == (set() if fits else {0})


def test_all_examples_in_one_step():
    rule = FedNova(**ANY, local_epochs=3, batch_size=0)
    _, refused = scalar_round(rule, (1, 50, {"local-steps": 3}), (1, 50, {"local-steps": 4}))
    assert refused.keys() == {1}


def test_the_bound_on_an_update_holds_with_its_factor():
    """a = 0.2 makes five times an update of 10; bounded by 1 it is 1, and the model moves by 0.2 * 1. An
    update of 0.1 is 0.5, and the model moves by 0.1, bounded or not."""
    for clip, update, expected in ((1.0, 10.0, 0.2), (1.0, 0.1, 0.1), (0.0, 10.0, 10.0)):
        x, _ = scalar_round(FedNova(**ANY, clip_update_norm=clip), (update, 1, {"local-norm": 0.2}))
        assert x == pytest.approx(expected)


def test_fednova_counts_momentum_steps():
    """rho 0.5, K 2: the last gradient counts once, the first 1.5 times: a = 2.5. K 1: a = 1.

    p = 1/2: sum p d/a = (5/2.5 + 3)/2 = 2.5, tau = 1.75: step 4.375.
    """
    answers = (5, 1, {"local-steps": 2}), (3, 1, {"local-steps": 1})
    x, _ = scalar_round(FedNova(client_momentum=0.5), *answers)
    assert x == pytest.approx(4.375, rel=1e-6)


def scores(*values):
    return {"struggle": record({"scores": np.array(values, np.float32)})}


@pytest.mark.parametrize("lie", [scores(0, 0, 0), scores(*[0.5] * 5000), scores(0.5)])
def test_the_first_scores_do_not_say_how_many_there_are(lie):
    """Two classes: one client struggles with neither and counts fully."""
    rule, x = FedSat(**ANY, num_classes=2, top_p=1), np.zeros(1, np.float32)
    x, _ = a_round(rule, 1, x, [(100, 1, lie), (1, 1, scores(0, 0))])
    assert x == pytest.approx([1])
    assert rule.phase_report.failures.keys() == {0}


LIES = [
    prototypes([[1, 2, 3]] * 3, [1, 0, 0]),
    prototypes([[1, 2]] * 2, [1, 0]),
    prototypes([[1] * 5000] * 3, [1, 0, 0]),
    prototypes([[1, 2], [1, 2], [0, 0]], [1, 1e-38, 0]),  # less than one example
    prototypes([[1, 2], [1, 2], [0, 0]], [1, 0, 0]),  # features of a class without an example
    prototypes([[3e6, 2], [0, 0], [0, 0]], [1, 0, 0]),
]


def test_the_first_prototypes_do_not_say_what_they_are_like():
    for lie in LIES:
        rule, x = FedProto(**ANY, num_classes=3, num_features=2), np.zeros(1, np.float32)
        a_round(rule, 1, x, [(100, 9, lie), (1, 2, ONE_CLASS)])
        assert rule.phase_report.failures.keys() == {0}
        np.testing.assert_array_equal(rule.rule_state.vectors["prototypes"], [[1, 2], [0, 0], [0, 0]])


@pytest.mark.parametrize(("weight", "expected"), [(0.0, 3.0), (None, 5 / 3), (1.0, 2.0)])
def test_extras_have_a_weight_of_their_own_also_one_of_nothing(weight, expected):
    """3 with weight 1, and 1 with this weight, or that of its model, 2: (3 + 1 w) / (1 + w)."""
    model = {"w": np.zeros(1, np.float32)}
    total = PartialSum(model, Layout(model))
    total.add(Answer(model, 1.0, MetricRecord(), RecordDict()), 1.0, 1.0, {"extra": np.array([3.0])}, 1.0)
    total.add(Answer(model, 2.0, MetricRecord(), RecordDict()), 2.0, 1.0, {"extra": np.array([1.0])}, weight)
    assert total.means()["extra"].tolist() == [pytest.approx(expected)]
