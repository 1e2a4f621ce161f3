"""A share of the local work: how many steps, which ones, and what is told of them."""

import numpy as np
import pytest

from clients import Classification, Examples, LocalTraining, Received
from clients.objectives import Objective
from clients.problems.evaluation import evaluate_splits
from clients.training import LocalRun, train_model

from ..helpers import CONFIG, make_client, make_examples
from ..test_training import linear_model

TWO_EPOCHS = LocalTraining(2, 8)  # of 40 examples: ten steps


def local_run(share, training=TWO_EPOCHS, rate=0.1):
    return LocalRun(make_examples(), training, Objective({}, {}), rate, (0,), share)


def sharing(client, *shares):
    """The client with its share by round."""
    client.task.__dict__["share"] = lambda server_round: shares[server_round - 1]
    return client


SHARES = [(1.0, [5, 5]), (0.51, [5, 1]), (0.5, [5]), (0.31, [4]), (0.1, [1]), (0.01, [1]), (0.0, [1])]


def test_a_share_is_so_many_steps_rounded_up_and_one_at_least():
    """Those that come first in all of the work, which is the default; a last epoch of none is none."""
    assert make_client("shared").task.share(1) == 1.0
    for share, steps in SHARES:
        everything, run = local_run(1.0), local_run(share)
        own = list(run.epochs(run.generator()))
        assert [len(batches) for batches in own] == steps
        assert TWO_EPOCHS.steps(make_examples(), share) == sum(steps)
        for mine, all_of_it in zip(own, everything.epochs(everything.generator()), strict=False):
            for batch, expected in zip(mine, all_of_it, strict=False):
                np.testing.assert_array_equal(batch, expected)


def test_figures_of_training_are_over_the_partial_epoch():
    """At a rate of next to nothing they are the start's own, on the sixth and seventh batch alone."""
    run = local_run(0.7, rate=1e-12)
    metrics = train_model(linear_model(), run)
    last = np.concatenate(list(run.epochs(run.generator()))[-1])
    assert len(last) == 16
    held_out = {"test": Examples(run.examples.columns, last)}
    start = evaluate_splits(linear_model(), held_out, "test", Classification())
    assert metrics["train-loss"] == pytest.approx(start["loss"], rel=1e-5)
    assert metrics["train-accuracy"] == start["accuracy"]
    assert metrics["local-steps"] == 7


def test_scaffold_divides_by_the_steps_that_were_done():
    """With c_i = c = 0: c_i+ = (x - x_i) / (K lr), K = 3 of 10."""
    client = sharing(make_client("shared", training=TWO_EPOCHS, objective="scaffold"), 0.3)
    start = client.get_parameters({}).by_name()
    control = {n: np.zeros_like(client.task.initial[n]) for n in client.trained_names}
    update = client.fit(Received(start, {"control": control}), CONFIG)
    assert update.metrics["local-steps"] == 3
    sent = update.arrays.by_name()
    for name in client.trained_names:
        expected = (start[name] - sent[name]) / 0.3
        np.testing.assert_allclose(update.records["control"][name], expected, atol=1e-5)
