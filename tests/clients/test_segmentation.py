"""Segmentation: loss and metrics by hand, by scikit-learn and by torchmetrics; the soft Dice loss."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, jaccard_score
from torch import nn
from torch.nn import functional

from clients import LOSSES, METRICS, Examples, Predicted, Segmentation
from clients.problems.base import in_windows
from clients.problems.evaluation import evaluate_splits

from .test_problems import Given

VOID = 255


def two_masks():
    """Outputs (2, 2, 1, 3) and masks (2, 1, 3): three pixels that count in the first, one in the second."""
    output = torch.zeros(2, 2, 1, 3)
    output[0, 1, 0, 0] = math.log(3)  # 1/4, 3/4
    output[1, 0, 0, 0] = math.log(7)  # 7/8, 1/8
    return output, torch.tensor([[[1, 0, 1]], [[1, VOID, VOID]]], dtype=torch.uint8)


def some(classes=4, shape=(9, 7), count=5, seed=0, void=0.1):
    """Random outputs and masks, some of whose pixels are void."""
    generator = torch.Generator().manual_seed(seed)
    output = torch.randn(count, classes, *shape, generator=generator)
    targets = torch.randint(classes, (count, *shape), generator=generator)
    targets[torch.rand(targets.shape, generator=generator) < void] = VOID
    return output, targets.to(torch.uint8)


def test_pixels_count_alike_and_void_ones_do_not():
    """-log of 3/4, 1/2, 1/2, and of 1/8; of equal outputs class 0 is predicted: right at 1, 0 and no more."""
    problem, (output, targets) = Segmentation(), two_masks()
    first, second = math.log(4 / 3) + 2 * math.log(2), math.log(8)
    assert problem.loss(output, targets).item() == pytest.approx((first + second) / 4)
    assert problem.loss(output, targets, "sum").item() == pytest.approx(first + second)
    assert problem.loss(output, targets, "none").tolist() == pytest.approx([first / 3, second])
    assert problem.scores(output, targets)["accuracy"].tolist() == [2, 0]
    assert problem.predictions(targets).tolist() == [3, 1]


def test_masks_without_a_pixel_that_counts_have_no_loss_and_no_gradient():
    output = torch.randn(2, 3, 2, 2, requires_grad=True)
    targets = torch.full((2, 2, 2), VOID, dtype=torch.uint8)
    for name in ("auto", "dice", "dice-ce"):
        loss = LOSSES[name](Segmentation())(output, targets)
        (gradient,) = torch.autograd.grad(loss, output)
        assert loss.item() == pytest.approx(0, abs=1e-6)
        assert not gradient.abs().max() > 1e-6


def metrics_of(output, targets):
    """The metrics of a model that gives these outputs, evaluated in batches of one mask."""
    classes = output.shape[1]
    problem = Segmentation()
    problem = problem.with_metrics(problem.usual_metrics(Predicted("classes", classes, background=True)))
    columns = {"x": np.arange(len(output), dtype=np.int64)[:, None], "y": targets.numpy()}
    examples = Examples(columns, np.arange(len(output)))
    return evaluate_splits(Given(output), {"test": examples}, "test", problem)


@pytest.mark.parametrize("shape", [(9, 7), (3, 4, 5)])
def test_metrics_are_scikit_learns_of_all_pixels(monkeypatch, shape):
    monkeypatch.setattr(Segmentation, "values_at_once", 2 * math.prod(shape))
    output, targets = some(shape=shape)
    found = metrics_of(output, targets)
    there = (targets != VOID).numpy()
    truth, said = targets.numpy()[there], output.argmax(1).numpy()[there]
    iou = jaccard_score(truth, said, average=None)
    assert found["iou"] == pytest.approx(iou[1:].mean())
    dice = 2 * iou / (1 + iou)
    assert [found[f"dice-{i}"] for i in (1, 2, 3)] == pytest.approx(dice[1:])
    assert found["dice"] == pytest.approx(dice[1:].mean())
    assert found["accuracy"] == pytest.approx((truth == said).mean())
    assert found["eval-examples"] == there.sum()
    np.testing.assert_array_equal(found["states"]["confusion-matrix"], confusion_matrix(truth, said))


def test_of_two_classes_there_is_one_dice():
    """Predicted 1, 0 and 0 of 1, 0 and 1, and 0 of 1: TP 1, FN 2; so 2/4 and 1/3."""
    found = metrics_of(*two_masks())
    assert (found["dice"], found["iou"], found["accuracy"]) == pytest.approx((1 / 2, 1 / 3, 1 / 2))
    assert "dice-1" not in found


def test_a_class_in_neither_masks_nor_predictions_has_no_dice():
    """Classes 0 to 3; 1 is always right, 2 is predicted and never true, 3 does not occur."""
    output = functional.one_hot(torch.tensor([[[1, 1, 2, 0]]]), 4).movedim(-1, 1).float()
    found = metrics_of(output, torch.tensor([[[1, 1, 0, 0]]], dtype=torch.uint8))
    assert "dice-3" not in found
    assert (found["dice-1"], found["dice-2"], found["dice"], found["iou"]) == (1, 0, 0.5, 0.5)


@pytest.mark.parametrize(("classes", "columns"), [(2, 2), (3, 4), (21, 22), (22, 2)])
def test_of_many_classes_there_is_no_column_each(classes, columns):
    metrics = Segmentation().usual_metrics(Predicted("classes", classes, background=True))
    assert sum(len(metric.columns(name)) for name, metric in metrics.items()) == columns


def test_sensitivity_leaves_out_the_background_and_balanced_accuracy_does_not():
    total = np.array([[8, 2, 0], [1, 3, 0], [1, 0, 1]])
    of_masks, of_classes = (Predicted("classes", 3, background=background) for background in (True, False))
    assert METRICS["sensitivity"](of_masks).value(total) == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert METRICS["sensitivity"](of_classes).value(total) == pytest.approx((0.8 + 3 / 4 + 1 / 2) / 3)
    assert METRICS["balanced-accuracy"](of_masks).value(total) == pytest.approx((0.8 + 3 / 4 + 1 / 2) / 3)


def dice_by_loops(output, targets, s=1e-5):
    """The soft Dice loss of each mask, pixel by pixel in float64."""
    losses = []
    for z, mask in zip(output.double().flatten(2).numpy(), targets.flatten(1).numpy(), strict=True):
        p = np.exp(z) / np.exp(z).sum(0)
        pixels = [i for i, label in enumerate(mask) if label != VOID]
        dice = []
        for c in range(len(z)):
            both = sum(p[c, i] for i in pixels if mask[i] == c)
            either = sum(p[c, i] + (mask[i] == c) for i in pixels)
            dice.append((2 * both + s) / (either + s))
        losses.append(1 - np.mean(dice))
    return losses


@pytest.mark.parametrize("shape", [(9, 7), (3, 4, 5)])
def test_soft_dice_is_its_formula(shape):
    output, targets = some(shape=shape)
    expected = dice_by_loops(output, targets)
    dice, both = (LOSSES[name](Segmentation()) for name in ("dice", "dice-ce"))
    assert dice(output, targets, "none").tolist() == pytest.approx(expected, rel=1e-5)
    assert dice(output, targets).item() == pytest.approx(np.mean(expected), rel=1e-5)
    usual = Segmentation().loss(output, targets, "none")
    assert both(output, targets, "none").tolist() == pytest.approx(np.add(expected, usual.numpy()), rel=1e-5)


def test_a_right_mask_has_no_dice_loss_even_of_classes_that_are_not_there():
    targets = torch.tensor([[[0, 1], [1, VOID]]], dtype=torch.uint8)
    output = 50 * functional.one_hot(torch.tensor([[[0, 1], [1, 2]]]), 3).movedim(-1, 1).float()
    assert LOSSES["dice"](Segmentation())(output, targets).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("output", "wanted"),
    [
        (torch.zeros(2, 3, 8, 8), ""),
        (torch.zeros(2, 4, 8, 8), "(2, 3, 8, 8), not (2, 4, 8, 8)"),
        (torch.zeros(2, 3, 4, 4), "(2, 3, 8, 8), not (2, 3, 4, 4)"),
        (torch.zeros(2, 3), "(2, 3, 8, 8), not (2, 3)"),
        ({"out": torch.zeros(2, 3, 8, 8)}, "(2, 3, 8, 8), not a dict"),
    ],
)
def test_the_model_gives_every_pixel_its_classes(output, wanted):
    told = Segmentation().misfit(nn.Identity(), torch.zeros(2, 1, 8, 8), output, 3)
    assert told.endswith(wanted)
    assert bool(told) == bool(wanted)


@pytest.mark.slow
def test_large_masks_are_evaluated_a_few_at_a_time():
    """2^20 values of an image and its mask of 512 x 512 pixels are those of two, and one at least."""
    seen = []

    class Records(nn.Module):
        def forward(self, inputs):
            seen.append(len(inputs))
            return torch.stack([inputs[:, 0], -inputs[:, 0]], 1)

    def batches_of(side):
        seen.clear()
        x = np.zeros((4, 1, side, side), np.float32)
        examples = Examples({"x": x, "y": x[:, 0].astype(np.uint8)}, np.arange(4))
        evaluate_splits(Records(), {"test": examples}, "test", Segmentation())
        return seen

    assert batches_of(512) == [2, 2]
    assert batches_of(16) == [4]
    assert batches_of(1024) == [1, 1, 1, 1]


# ---- evaluation by windows ----------------------------------------------------------------------------


SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=3)


class Squares(nn.Module):
    """A network that sees each value for itself."""

    def forward(self, x):
        return torch.cat([x**2, 1 - x], 1)


@given(SIZES)
def test_a_network_of_single_pixels_gives_the_same_by_windows(pairs):
    windows, sizes = [window for window, _ in pairs], [window + more for window, more in pairs]
    x = torch.randn(2, 1, *sizes)
    torch.testing.assert_close(in_windows(Squares(), x, windows), Squares()(x))


class Number(nn.Module):
    """Counts its calls: the n-th window gives n everywhere."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.full_like(x, self.calls)


def test_overlaps_are_means_weighted_by_a_gaussian_about_each_centre():
    """Windows of 4 in 8 pixels begin at 0, 2 and 4."""
    found = in_windows(Number(), torch.zeros(1, 1, 8), [4])[0, 0].numpy()
    weight = np.maximum(np.exp(-(((np.arange(4) - 1.5) / (4 / 8)) ** 2) / 2), 1e-3)
    total, counted = np.zeros(8), np.zeros(8)
    for number, start in enumerate((0, 2, 4), 1):
        total[start : start + 4] += number * weight
        counted[start : start + 4] += weight
    np.testing.assert_allclose(found, total / counted, rtol=1e-5)
    assert found[[0, -1]].tolist() == pytest.approx([1, 3])


@pytest.mark.parametrize(("size", "calls"), [(4, 1), (5, 2), (6, 2), (7, 3), (8, 3)])
def test_the_last_window_ends_with_the_image(size, calls):
    model = Number()
    in_windows(model, torch.zeros(1, 1, size), [4])
    assert model.calls == calls


def test_a_problem_without_windows_gives_whole_images():
    problem, model = Segmentation(), Number()
    problem.outputs_of(model, torch.zeros(1, 1, 8, 8))
    assert model.calls == 1
    problem.with_windows((4, 4)).outputs_of(model, torch.zeros(1, 1, 8, 8))
    assert (model.calls, problem.windows) == (1 + 9, ())
