"""Counts of classes from sites: one that cannot be used costs that site only."""

import logging

import numpy as np
import pytest
from flwr.app import ConfigRecord

from fedbn_flower.core.errors import RunFailed
from fedbn_flower.job.site_facts import SiteCounts
from fedbn_flower.server.questions import learn_class_counts
from strategies import FedDisco

from .hostile import LIAR, SITES, Asked, answered, asking

HONEST = SiteCounts(train=10, val=0, test=0, classes=[6, 4], features=[])


def learnt(refused):
    """The rule after the sites in `refused` have claimed one class more than there is."""

    def client(message, node):
        classes = [6, 3, 1] if node in refused else HONEST.classes
        counts = HONEST.model_copy(update={"classes": classes})
        return answered(message, {"counts": ConfigRecord({"counts": counts.model_dump_json()})})

    inputs, asked = asking("")
    inputs.config.num_clients, inputs.config.strategy = SITES, "feddisco"
    rule = FedDisco(b=1.0)
    rule.node_directory = asked.node_directory
    learn_class_counts(inputs, rule, Asked(SITES, client))
    return rule


def test_a_site_whose_counts_are_refused_weighs_nothing(caplog):
    """The others, all alike, weigh 1/4 - 0 + b each, and those asked without it 1/2 + b."""
    caplog.set_level(logging.WARNING)
    rule = learnt({LIAR})
    np.testing.assert_array_equal(rule.rule_state.vectors["class-counts"], [[6, 4]] * LIAR + [[0, 0]])
    weights = rule.answer_weights(range(SITES), rule.rule_state)
    assert weights == pytest.approx({0: 1.25, 1: 1.25, 2: 1.25, 3: 1.25, LIAR: 0.0})
    assert rule.answer_weights([0, LIAR], rule.rule_state) == pytest.approx({0: 2.0, LIAR: 0.0})
    assert rule.answer_weights([LIAR], rule.rule_state) == {LIAR: 0.0}
    refused, effect = (record.getMessage() for record in caplog.records)
    assert "3 classes are counted: left out" in refused
    assert effect == (
        "strategy 'feddisco': no counts of classes from partition 4: what it answers weighs nothing"
    )


def test_without_any_counts_the_run_ends():
    with pytest.raises(RunFailed, match="3 classes are counted"):
        learnt(set(range(SITES)))
