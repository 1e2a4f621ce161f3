"""Learning problems: losses, scores and derived metrics, worked out by hand."""

import math
import re

import numpy as np
import pytest
import torch
from torch import nn

from clients import PROBLEMS, Classification, Examples, LeastSquares, MultiLabel, NextCharacter, Regression
from clients.problems.evaluation import evaluate_splits

THIRD = math.log(3)


def characters():
    """Two windows of three places over three characters, all equally likely but two: (2, 3, 3), (2, 3)."""
    output = torch.zeros(2, 3, 3)
    output[0, 1] = torch.tensor([0, math.log(2), 0])  # 1/4, 1/2, 1/4
    output[1, 0] = torch.tensor([0, 0, math.log(6)])  # 1/8, 1/8, 6/8
    return output, torch.tensor([[0, 1, 2], [0, -1, -1]])


def test_characters_count_alike_however_full_their_windows_are():
    """-log of 1/3, 1/2, 1/3 and 1/8; the greatest score, the first of equals, is right at two of four."""
    problem, (output, targets) = NextCharacter(), characters()
    first, second = 2 * THIRD + math.log(2), math.log(8)
    assert problem.loss(output, targets).item() == pytest.approx((first + second) / 4)
    assert problem.loss(output, targets, "sum").item() == pytest.approx(first + second)
    assert problem.loss(output, targets, "none").tolist() == pytest.approx([first / 3, second])
    assert problem.scores(output, targets)["accuracy"].tolist() == [2, 0]
    assert problem.predictions(targets).tolist() == [3, 1]
    scores, right = problem.predicted(output, targets)
    assert right.tolist() == [0, 1, 2, 0]
    np.testing.assert_allclose(scores[[1, 3]], [[1 / 4, 1 / 2, 1 / 4], [1 / 8, 1 / 8, 6 / 8]])


def test_the_perplexity_is_the_exponential_of_the_mean_loss():
    assert NextCharacter().derived({"loss": math.log(7), "accuracy": 0.5}) == {"perplexity": pytest.approx(7)}
    assert NextCharacter().derived({"loss": 1e9}) == {"perplexity": math.inf}


class Given(nn.Module):
    """An output for every example, whatever it is."""

    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, inputs):
        return self.output[inputs[:, 0].long()]


@pytest.mark.parametrize("batch", [1, 1000])
def test_held_out_metrics_are_means_over_characters(monkeypatch, batch):
    """Whatever the batches are: three characters and one, or all four."""
    monkeypatch.setattr("clients.problems.evaluation.EVALUATION_BATCH", batch)
    output, targets = characters()
    examples = Examples({"x": np.arange(2)[:, None], "y": targets.numpy()}, np.arange(2))
    metrics = evaluate_splits(Given(output), {"test": examples}, "test", NextCharacter())
    loss = (2 * THIRD + math.log(16)) / 4
    expected = {"loss": loss, "accuracy": 0.5, "perplexity": math.exp(loss), "eval-examples": 4}
    assert metrics == pytest.approx(expected)


@pytest.mark.parametrize("batch", [1, 2, 1000])
def test_hits_are_counted_by_class(monkeypatch, batch):
    """Four classes; said 0, 0, 1, 3 of what is 0, 1, 1, 3: nothing is of class 2."""
    monkeypatch.setattr("clients.problems.evaluation.EVALUATION_BATCH", batch)
    output = torch.eye(4)[[0, 0, 1, 3]]
    examples = Examples({"x": np.arange(4)[:, None], "y": np.array([0, 1, 1, 3])}, np.arange(4))
    held_out = {"test": examples}
    metrics = evaluate_splits(Given(output), held_out, "test", Classification(), classes=4)
    assert metrics["class-hits"] == [1, 1, 0, 1]
    assert metrics["class-examples"] == [1, 2, 0, 1]
    without = evaluate_splits(Given(output), held_out, "test", Classification())
    assert without.keys() == {"loss", "accuracy", "eval-examples"}


def test_only_one_of_several_classes_is_counted():
    output, targets = characters()
    examples = Examples({"x": np.arange(2)[:, None], "y": targets.numpy()}, np.arange(2))
    held_out = {"test": examples}
    assert "class-hits" not in evaluate_splits(Given(output), held_out, "test", NextCharacter(), classes=3)


def linear(*values):
    model = nn.Sequential(nn.Flatten(), nn.Linear(len(values) - 1, 1))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([values[:-1]]))
        model[1].bias.fill_(values[-1])
    return model


def test_least_squares_by_hand():
    """Errors of 1 and -2: half their squares are 0.5 and 2."""
    problem = LeastSquares(np.array([1.0, 2.0, 3.0]))
    output, targets = torch.tensor([[1.0], [3.0]]), torch.tensor([[0.0], [5.0]])
    assert problem.loss(output, targets).item() == 1.25
    assert problem.loss(output, targets, "sum").item() == 2.5
    assert problem.loss(output, targets, "none").tolist() == [0.5, 2]
    assert problem.of_model(linear(1.0, 2.0, 3.0)) == {"distance": 0}
    assert problem.of_model(linear(1.0, 4.0, 0.0)) == {"distance": pytest.approx(math.sqrt(4 + 9))}


def test_regression_by_hand():
    """Errors of 1, -3 and 2: squares 1, 9 and 4."""
    problem = Regression()
    output, targets = torch.tensor([[2.0], [1.0], [5.0]]), torch.tensor([[1.0], [4.0], [3.0]])
    assert problem.loss(output, targets).item() == pytest.approx(14 / 3)
    assert problem.loss(output, targets, "sum").item() == 14
    assert problem.loss(output, targets, "none").tolist() == [1, 9, 4]
    assert problem.scores(output, targets)["mae"].tolist() == [1, 3, 2]


def test_labels_by_hand():
    """Probabilities 3/4 and 1/2, then 1/4 and 1/5: a label is predicted from 1/2 on."""
    problem, three = MultiLabel(), math.log(3)
    output, targets = torch.tensor([[three, 0.0], [-three, -math.log(4)]]), torch.tensor([[1.0, 0], [1, 0]])
    first = (math.log(4 / 3) + math.log(2)) / 2
    second = (math.log(4) + math.log(5 / 4)) / 2
    assert problem.loss(output, targets).item() == pytest.approx((first + second) / 2)
    assert problem.loss(output, targets, "sum").item() == pytest.approx(first + second)
    assert problem.loss(output, targets, "none").tolist() == pytest.approx([first, second])
    assert problem.scores(output, targets)["accuracy"].tolist() == [0.5, 0.5]
    scores, labels = problem.predicted(output, targets)
    assert scores.flatten().tolist() == pytest.approx([0.75, 0.5, 0.25, 0.2])
    assert (scores.dtype, labels.tolist()) == (torch.float64, [[1, 0], [1, 0]])


TWO = torch.zeros(2, 4)
FITS = [
    (Classification(), nn.Linear(4, 3), TWO, 3),
    (Classification(), nn.Linear(4, 5), TWO, 3),
    (Regression(), nn.Linear(4, 1), TWO, 1),
    (MultiLabel(), nn.Linear(4, 3), TWO, 3),
    (NextCharacter(), nn.Embedding(9, 9), TWO.long(), 9),
    (LeastSquares(np.zeros(5)), nn.Linear(4, 1), TWO, 1),
]
DOES_NOT_FIT = [
    (Classification(), nn.Linear(4, 2), TWO, 3, r"shape \(2, 3\), not \(2, 2\)"),
    (Classification(), nn.LSTM(4, 3), TWO, 3, r"shape \(2, 3\), not a tuple"),
    (Regression(), nn.Linear(4, 2), TWO, 1, r"shape \(2, 1\), not \(2, 2\)"),
    (MultiLabel(), nn.Linear(4, 4), TWO, 3, r"shape \(2, 3\), not \(2, 4\)"),
    (NextCharacter(), nn.Embedding(9, 8), TWO.long(), 9, r"shape \(2, 4, 9\), not \(2, 4, 8\)"),
    (
        NextCharacter(),
        nn.Sequential(nn.Embedding(9, 9), nn.Flatten()),
        TWO.long(),
        9,
        r"\(2, 4, 9\), not \(2, 36\)",
    ),
    (LeastSquares(np.zeros(5)), nn.Linear(4, 1, bias=False), TWO, 1, "'linear', or another with 4 weights"),
    (LeastSquares(np.zeros(5)), nn.Sequential(nn.Linear(4, 1), nn.Softmax(1)), TWO, 1, "'linear', or"),
    (LeastSquares(np.zeros(5)), nn.Sequential(nn.Linear(4, 1), nn.ReLU()), TWO, 1, "'linear', or"),
]


def name_of(value):
    """The name under which a run finds a problem."""
    return next((name for name, cls in PROBLEMS.items() if type(value) is cls), None)


@pytest.mark.parametrize(("problem", "model", "inputs", "outputs"), FITS, ids=name_of)
def test_what_fits(problem, model, inputs, outputs):
    assert problem.misfit(model, inputs, model(inputs), outputs) == ""


@pytest.mark.parametrize(("problem", "model", "inputs", "outputs", "told"), DOES_NOT_FIT, ids=name_of)
def test_what_does_not_fit_is_reported(problem, model, inputs, outputs, told):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for p in model.parameters():
            nn.init.normal_(p)
    found = problem.misfit(model, inputs, model(inputs), outputs)
    assert re.search(told, found), found
