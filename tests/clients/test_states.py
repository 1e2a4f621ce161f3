"""States that no predictions have: what a client may send in the place of a metric's sums."""

import numpy as np
import pytest
import torch

from clients import METRICS, Metric, Predicted

CLASSES, TWO = Predicted("classes", 3, thresholds=10), Predicted("classes", 2, thresholds=10)
LABELS, VALUES = Predicted("labels", 2, thresholds=10), Predicted("numbers", 2)
SIZE = 12
FITTING = [
    *[(predicted, name) for predicted in (CLASSES, TWO, LABELS) for name in ("f1", "auroc", "ece", "iou")],
    (CLASSES, "balanced-accuracy"), (VALUES, "r2"), (VALUES, "rmse"),
]  # fmt: skip


def state_of(predicted, name, size=SIZE):
    rng = np.random.default_rng(5)
    scores = torch.tensor(rng.random((size, predicted.size)))
    if predicted.kind == "classes":
        targets, scores = torch.tensor(rng.integers(0, predicted.size, size)), scores.softmax(1)
    elif predicted.kind == "labels":
        targets = torch.tensor(rng.integers(0, 2, (size, predicted.size)))
    else:
        targets = torch.tensor(rng.normal(size=(size, predicted.size)))
    metric = METRICS[name](predicted)
    return metric, metric.batch(scores, targets)


@pytest.mark.parametrize(("predicted", "name"), FITTING, ids=str)
def test_a_state_is_of_its_number_of_predictions(predicted, name):
    metric, state = state_of(predicted, name)
    assert metric.misfit(state, SIZE) == ""
    assert metric.misfit(metric.zeros(), 0) == ""
    assert "predictions, not of" in metric.misfit(state, SIZE + 1)
    assert "predictions, not of" in metric.misfit(2 * state, SIZE)


LIES = {
    "ece: a negative count": ("ece", CLASSES, (0, 0, -5.0), "no predictions have such counts"),
    "ece: more hits than examples": ("ece", CLASSES, (1, 7, 99.0), "no predictions have such counts"),
    "ece: certain beyond 1": ("ece", CLASSES, (2, 7, 99.0), "no predictions have such counts"),
    "ece: half an example": ("ece", CLASSES, (0, 7, 0.5), "no predictions have such counts"),
    "r2: negative squares": ("r2", VALUES, (29, 0, -1e6), "no numbers have such sums"),
    "r2: negative errors": ("r2", VALUES, (1, 1, -1.0), "no numbers have such sums"),
    "r2: a digit of more examples": ("r2", VALUES, (16, 0, 1e11), "no numbers have such sums"),
    "r2: half a unit": ("r2", VALUES, (29, 0, 1e6 + 0.5), "no numbers have such sums"),
    "rmse: sums without squares": ("rmse", VALUES, (8, 0, 1e6), "no numbers have such sums"),
}


def test_sums_that_nothing_has_are_found():
    for name, predicted, (row, column, value), reason in LIES.values():
        metric, state = state_of(predicted, name)
        state[row, column] = value
        assert metric.misfit(state, SIZE) == reason


def test_a_metric_of_ones_own_is_to_be_in_its_range():
    class Share(Metric):
        """Share of examples."""

        def values(self, total):
            return total[:1] / total[1]

    metric = Share(CLASSES)
    assert metric.misfit(np.array([1.0, 2.0]), 2) == ""
    assert metric.misfit(np.array([0.0, 0.0]), 0) == ""
    assert metric.misfit(np.array([-9.0, 2.0]), 2) == "its value is -4.5, not in [0, 1]"
