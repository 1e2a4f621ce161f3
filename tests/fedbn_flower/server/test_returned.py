"""What a user's methods return: names in any iterable; a slip is one line that says what is expected."""

import pytest
import torch
from torch import nn

from clients import Classification, FedAvgClient, Loss, Objective
from clients.objectives import Outcome
from fedbn_flower.core.errors import RunFailed, UserError
from strategies import FedAvg


def test_what_is_no_names_is_one_line_before_anything_starts(run, tmp_path):
    own = type("Own", (FedAvgClient,), {"local_entries": staticmethod(lambda model: "1.weight")})
    with pytest.raises(UserError) as caught:
        run(client=own, run_dir=str(tmp_path / "never"))
    line = "Own.local_entries returned '1.weight', expected a set of names of the state dict's entries"
    assert str(caught.value).endswith(line)
    assert str(caught.value).startswith("client: 'Own@")
    assert not (tmp_path / "never").exists()


def method(base, name, function):
    return type("Own", (base,), {name: function})


def cross_entropy(output, targets, reduction="mean"):
    return nn.functional.cross_entropy(output, targets, reduction=reduction)


def both(of_loss):
    """An `Objective.loss` whose loss is changed."""

    def loss(self, model, inputs, targets, reduction="mean"):
        output = model(inputs)
        return of_loss(cross_entropy(output, targets)), output

    return loss


def triple(change):
    return lambda self, parameters, config: change(*FedAvgClient.fit(self, parameters, config))


def of_rule(name, change):
    """A strategy of whose method the result is changed."""
    return method(FedAvg, name, lambda self, *given: change(getattr(FedAvg, name)(self, *given)))


SLIPS = {
    "Own.aggregate_train returned None, expected (an ArrayRecord or None, a MetricRecord or None)": {
        "strategy": of_rule("aggregate_train", lambda found: None)
    },
    "Own.aggregate_train returned ({'1.weight': an object of type Array": {
        "strategy": of_rule("aggregate_train", lambda found: (dict(found[0]), found[1]))
    },
    "Own.step_train returned None, expected (an ArrayRecord or None, a MetricRecord or None)": {
        "strategy": of_rule("step_train", lambda found: None)
    },
    "Own.configure_train returned None, expected Messages": {
        "strategy": of_rule("configure_train", lambda found: None)
    },
    "Own.configure_evaluate returned a list of str, expected Messages": {
        "strategy": of_rule("configure_evaluate", lambda found: ["node 1"])
    },
    "Own.aggregate_evaluate returned (0.5, {'loss'": {
        "strategy": of_rule("aggregate_evaluate", lambda found: (0.5, found))
    },
    "Own.fit returned None, expected (arrays, number of examples, metrics)": {
        "client": method(FedAvgClient, "fit", lambda self, parameters, config: None)
    },
    "Own.train returned None, expected the run's metrics, 'local-steps' among them": {
        "client": method(FedAvgClient, "train", lambda self, run, config: None)
    },
    "the metric 'told' is 'x', expected a number": {
        "client": method(FedAvgClient, "fit", triple(lambda x, n, _: (x, n, {"told": "x"})))
    },
    "Own.loss returned a tensor of shape (), expected (loss, output): a scalar tensor with gradient, and": {
        "objective": method(
            Objective, "loss", lambda self, model, x, y, reduction="mean": cross_entropy(model(x), y)
        )
    },
    "Own.loss returned (a tensor of shape () without gradient, a tensor of": {
        "objective": method(Objective, "loss", both(torch.Tensor.detach))
    },
    "Own.finish returned None, expected an Outcome": {
        "objective": method(Objective, "finish", lambda self, work: None)
    },
    "Own.finish returned a list of int, expected arrays by name as the memory": {
        "objective": method(Objective, "finish", lambda self, work: Outcome(memory=[1]))
    },
    "'w' is a tensor of shape (2,) without gradient, expected a NumPy array": {
        "objective": method(Objective, "finish", lambda self, _: Outcome(records={"r": {"w": torch.ones(2)}}))
    },
    "Own.__call__ returned a tensor of shape (721,), expected a scalar tensor with gradient": {
        "loss": method(Loss, "__call__", lambda self, o, t, reduction="mean": cross_entropy(o, t, "none"))
    },
    "Own.loss returned 1.0, expected a scalar tensor with gradient": {
        "problem": method(Classification, "loss", lambda self, o, t, reduction="mean": 1.0)
    },
    ", expected with reduction 'sum' that of the two examples, ": {
        "problem": method(Classification, "loss", lambda self, o, t, reduction="mean": cross_entropy(o, t))
    },
    "Own.scores returned {'accuracy': a tensor of shape () without gradient}, expected a dict of tensors": {
        "problem": method(
            Classification, "scores", lambda self, o, t: {"accuracy": (o.argmax(1) == t).float().mean()}
        )
    },
    "Own.predictions returned 1.0, expected a tensor of shape (": {
        "problem": method(Classification, "predictions", lambda self, targets: 1.0)
    },
    "Own.derived returned None, expected a dict of numbers by name": {
        "problem": method(Classification, "derived", lambda self, means: None)
    },
    "Own.derived returned {'mood': 'good'}, expected a dict of numbers by name": {
        "problem": method(Classification, "derived", lambda self, means: {"mood": "good"})
    },
    "Own.of_model returned {'mood': 'good'}, expected a dict of numbers by name": {
        "problem": method(Classification, "of_model", lambda self, model: {"mood": "good"})
    },
}


@pytest.mark.parametrize("line", SLIPS)
def test_a_slip_in_a_method_says_what_is_expected(run, line):
    with pytest.raises(RunFailed if not SLIPS[line].keys() & {"problem"} else UserError) as caught:
        run(**{"client": "shared", "batch_size": 0, "rounds": 1} | SLIPS[line])
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_problem_without_its_headline_is_no_silent_gap(run):
    """It was evaluated, and the accuracy by which runs are compared was nowhere."""
    scores = {"scores": lambda self, output, targets: {"hits": (output.argmax(1) == targets).float()}}
    with pytest.raises(
        UserError, match=r"Own\.scores returned .*, expected its headline 'accuracy' among them"
    ):
        run(problem=type("Own", (Classification,), scores))


METRIC = """
import numpy as np, torch
from fedbn_flower.clients import Metric

class Own(Metric):
    "As it should not be."
    def batch(self, scores, targets):
        return {batch}
    def values(self, total):
        return {values}
"""


class Pairs(Classification):
    """What it adds up are pairs of a batch: of one example there is none."""

    def loss(self, output, targets, reduction="mean"):
        apart = (output[:, 0] - output[:1, 0]).square()
        return apart if reduction == "none" else getattr(apart, reduction)()


def test_a_loss_of_pairs_is_one(run):
    assert run(problem=Pairs, rounds=1).history.loss.notna().all()


@pytest.mark.parametrize(
    ("batch", "values", "line"),
    [
        ("[1.0, 2.0]", "total[:1]", "Own.batch returned a list of float, expected a NumPy array"),
        (
            "torch.ones(2)",
            "total[:1]",
            "Own.batch returned a tensor of shape (2,) without gradient, expected",
        ),
        (
            "np.array([(scores.argmax(1) == targets).float().mean().item()])",
            "total",
            "Own.batch returned '[nan]', expected a NumPy array, of zeros for no examples",
        ),
        ("np.zeros(2)", "None", "Own.values returned None, expected numbers, a NumPy array (k,)"),
        ("np.zeros(2)", "'a'", "Own.values returned 'a', expected numbers, a NumPy array (k,)"),
    ],
)
def test_a_metric_of_another_kind_is_one_line_before_anything_starts(run, tmp_path, batch, values, line):
    (tmp_path / "own.py").write_text(METRIC.format(batch=batch, values=values))
    with pytest.raises(UserError) as caught:
        run(metrics="own.py:Own")
    assert line in str(caught.value)
