"""Metrics that add: against scikit-learn on all examples in one place, however these are divided."""

import math
import re
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from clients import METRICS, Metric, Predicted
from clients.problems.evaluation import added
from clients.problems.metrics.from_torchmetrics import TorchMetric, class_named
from clients.problems.metrics.scores import curve, thresholds

THRESHOLDS = 1000
ARGUMENTS = {"sensitivity-at": "0.9"}
KINDS = {"two classes": ("classes", 2), "four classes": ("classes", 4), "labels": ("labels", 3)}


def predictions(kind, size, count=400, seed=0, without=()):
    """Scores and targets of ``count`` examples, some of which are right; none of the classes ``without``."""
    rng = np.random.default_rng(seed)
    if kind == "numbers":
        y = rng.normal(50, 10, size=(count, size))
        return torch.from_numpy(y + rng.normal(size=y.shape)), torch.from_numpy(y)
    logits = rng.normal(size=(count, size))
    if kind == "labels":
        y = (rng.random((count, size)) < 0.3).astype(np.int64)
        y[:, list(without)] = 0
        return torch.from_numpy(logits + y).sigmoid(), torch.from_numpy(y)
    y = rng.choice([c for c in range(size) if c not in without], count)
    logits[range(count), y] += 1
    return torch.from_numpy(logits).softmax(1), torch.from_numpy(y)


def made(name, kind, size):
    return METRICS[name](Predicted(kind, size, THRESHOLDS), ARGUMENTS.get(name, ""))


def of_all(metric, scores, targets):
    return metric.value(metric.batch(scores, targets))


def one_against_rest(kind, s, y):
    """Pairs (scores, truth) of each class or label; with two classes of class 1."""
    if kind == "labels":
        return [(s[:, i], y[:, i]) for i in range(s.shape[1])]
    return [(s[:, c], y == c) for c in range(1 if s.shape[1] == 2 else 0, s.shape[1])]


def by_sklearn(name, kind, s, y):
    """The same by scikit-learn, of arrays."""
    pairs = one_against_rest(kind, s, y)
    said = s >= 0.5 if kind == "labels" else s.argmax(1)
    average = "binary" if kind == "classes" and s.shape[1] == 2 else "macro"
    if name in ("f1", "dice"):
        return sk.f1_score(y, said, average=average, zero_division=np.nan)
    if name == "iou":
        return sk.jaccard_score(y, said, average=average)
    if name == "sensitivity":
        return sk.recall_score(y, said, average=average, zero_division=np.nan)
    if name == "specificity":
        hits = [(said[:, i] if kind == "labels" else said == i) for i in range(s.shape[1])]
        hits = hits[1:] if average == "binary" else hits
        both = zip(hits, pairs, strict=True)
        return np.mean([sk.recall_score(truth, hit, pos_label=0) for hit, (_, truth) in both])
    if name == "balanced-accuracy":
        if kind == "labels":
            return np.mean([sk.balanced_accuracy_score(y[:, i], said[:, i]) for i in range(y.shape[1])])
        return sk.balanced_accuracy_score(y, said)
    if name == "auroc":
        return np.mean([sk.roc_auc_score(truth, score) for score, truth in pairs])
    if name == "average-precision":
        return np.mean([sk.average_precision_score(truth, score) for score, truth in pairs])
    if name == "sensitivity-at":
        curves = [sk.roc_curve(truth, score, drop_intermediate=False) for score, truth in pairs]
        return np.mean([tpr[fpr <= 0.1 + 1e-9].max() for fpr, tpr, _ in curves])
    raise KeyError(name)


BY_SKLEARN = [name for name in METRICS if name not in ("ece", "r2", "rmse")]
ROUNDED = {"auroc": 1 / THRESHOLDS, "average-precision": 5 / THRESHOLDS, "sensitivity-at": 0.01}
"""By so much they may be off, but for scores that are thresholds, of which the curves are exact."""


@pytest.mark.parametrize("of", KINDS)
@pytest.mark.parametrize("name", BY_SKLEARN)
def test_every_metric_of_classes_is_scikit_learns(name, of):
    kind, size = KINDS[of]
    scores, targets = predictions(kind, size)
    grid = thresholds(THRESHOLDS)
    on_grid = grid[(torch.bucketize(scores, grid, right=True) - 1).clamp(min=0)]
    for given_, most in ((scores, ROUNDED.get(name, 1e-12)), (on_grid, 1e-12)):
        expected = by_sklearn(name, kind, given_.numpy(), targets.numpy())
        assert of_all(made(name, kind, size), given_, targets) == pytest.approx(expected, abs=most)


@pytest.mark.parametrize("of", KINDS)
def test_the_calibration_error_is_guos(of):
    """Written out: bins (a, b] of the probability, gaps weighted by their examples."""
    kind, size = KINDS[of]
    scores, targets = predictions(kind, size)
    s, y = scores.numpy(), targets.numpy()
    if kind == "labels":
        p, hit = s.ravel(), y.ravel()
    else:
        p, hit = (s[:, 1], y) if size == 2 else (s.max(1), s.argmax(1) == y)
    expected = 0.0
    for low in range(15):
        inside = (p > low / 15) & (p <= (low + 1) / 15)
        if inside.any():
            expected += inside.mean() * abs(hit[inside].mean() - p[inside].mean())
    assert of_all(made("ece", kind, size), scores, targets) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("size", [1, 3])
def test_metrics_of_numbers_are_scikit_learns(size):
    scores, targets = predictions("numbers", size)
    s, y = scores.numpy(), targets.numpy()
    assert of_all(made("r2", "numbers", size), scores, targets) == pytest.approx(sk.r2_score(y, s))
    assert of_all(made("rmse", "numbers", size), scores, targets) == pytest.approx(
        np.sqrt(((y - s) ** 2).mean(0)).mean()
    )


EVERY = [(name, *of) for name in METRICS for of in KINDS.values() if of[0] in METRICS[name].kinds]
EVERY += [(name, "numbers", 2) for name in METRICS if "numbers" in METRICS[name].kinds]
OTHERS = [("cohen-kappa", "classes", 3), ("matthews-corr-coef", "labels", 2), ("r2-score", "numbers", 2)]


def any_metric(name, kind, size):
    predicted = Predicted(kind, size, 50)
    if name in METRICS:
        return METRICS[name](predicted, ARGUMENTS.get(name, ""))
    return TorchMetric(predicted, class_named(name, predicted))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "kind", "size"), [*EVERY, *OTHERS])
@settings(max_examples=6)  # of each of 35 metrics
@given(cuts=st.lists(st.integers(0, 60), max_size=4))
def test_states_of_any_split_add_to_the_state_of_the_whole(name, kind, size, cuts):
    """Also with clients that have no example at all; counts to the bit."""
    metric = any_metric(name, kind, size)
    scores, targets = predictions(kind, size, count=60)
    edges = [0, *sorted(cuts), 60]
    parts = [metric.batch(scores[a:b], targets[a:b]) for a, b in pairwise(edges) if a < b]
    whole = metric.batch(scores, targets)
    total = added({"state": part} for part in [metric.zeros(), *parts])["state"]
    assert total.dtype == whole.dtype
    assert total.shape == whole.shape
    if whole.dtype == np.int64:
        assert np.array_equal(total, whole)
    else:
        np.testing.assert_allclose(total, whole, rtol=1e-12)
    assert metric.value(total) == pytest.approx(metric.value(whole), rel=1e-9, nan_ok=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("sensitivity", 1.0), ("balanced-accuracy", 1.0), ("auroc", math.nan), ("average-precision", 1.0)],
)
def test_a_class_without_examples_is_left_out_of_the_mean_over_classes(name, expected):
    """All examples are of class 0 of three, and said to be: no ROC curve has negatives and positives."""
    scores = torch.tensor([[0.8, 0.1, 0.1]] * 4, dtype=torch.float64)
    metric = made(name, "classes", 3)
    assert of_all(metric, scores, torch.zeros(4, dtype=torch.int64)) == pytest.approx(expected, nan_ok=True)


def test_only_the_calibration_error_has_no_interval():
    """Resampled it is larger than it is: of a model that is calibrated, too, it is more than 0."""
    assert [name for name, metric in METRICS.items() if not metric.has_interval] == ["ece"]


@pytest.mark.parametrize("name", [name for name in METRICS if "classes" in METRICS[name].kinds])
def test_no_examples_have_no_value(name):
    metric = made(name, "classes", 3)
    assert math.isnan(metric.value(metric.zeros()))


@pytest.mark.parametrize("kind", ["classes", "labels"])
def test_what_one_class_lacks_does_not_change_the_others(kind):
    """The mean is over the classes that scikit-learn can say something of."""
    scores, targets = predictions(kind, 4, without=[2])
    pairs = one_against_rest(kind, scores.numpy(), targets.numpy())
    expected = np.mean([sk.roc_auc_score(t, s) for i, (s, t) in enumerate(pairs) if i != 2])
    found = of_all(made("auroc", kind, 4), scores, targets)
    assert found == pytest.approx(expected, abs=1 / THRESHOLDS)


def test_sensitivity_at_a_specificity_by_hand():
    """Ten negatives at 0.01 to 0.10; of four positives two are above all, one above nine, one above none."""
    p = torch.tensor([i / 100 for i in range(1, 11)] + [0.5, 0.4, 0.095, 0.001], dtype=torch.float64)
    y = torch.tensor([0] * 10 + [1] * 4)
    scores = torch.stack([1 - p, p], 1)
    for specificity, expected in (("0.99", 0.5), ("0.9", 0.75), ("0.1", 0.75)):
        metric = METRICS["sensitivity-at"](Predicted("classes", 2, 5000), specificity)
        assert of_all(metric, scores, y) == expected


def drawn(positives, negatives, seed):
    """Scores (n, 2) and targets: those of the positives are 1.5 deviations higher in log-odds."""
    rng = np.random.default_rng(seed)
    z = torch.from_numpy(np.concatenate([rng.normal(1.5, 1, positives), rng.normal(0, 1, negatives)]))
    y = torch.cat([torch.ones(positives, dtype=torch.int64), torch.zeros(negatives, dtype=torch.int64)])
    return torch.stack([1 - z.sigmoid(), z.sigmoid()], 1), y


def differences(name, count, scores, targets):
    """How far a metric is from scikit-learn's, and the bound that the docs state, from the scores."""
    metric = METRICS[name](Predicted("classes", 2, count))
    p, y = scores[:, 1].numpy(), targets.numpy()
    by_sk = {"auroc": sk.roc_auc_score, "average-precision": sk.average_precision_score}[name](y, p)
    bins = np.digitize(p, thresholds(count).numpy())
    bound = 0.0
    for b in np.unique(bins):
        inside, above = bins == b, bins > b
        share = y[inside].sum() / y.sum()
        negatives, tp, fp = (1 - y[inside]).sum(), y[above].sum(), (1 - y[above]).sum()
        if name == "auroc":
            bound += share * negatives / (1 - y).sum() / 2
        elif share:
            first = tp + y[inside].sum()
            bound += share * (first / (first + fp) - (tp + 1) / (tp + 1 + fp + negatives))
    return abs(of_all(metric, scores, targets) - by_sk), bound


@pytest.mark.parametrize("name", ["auroc", "average-precision"])
@settings(max_examples=20)
@given(st.integers(1, 30), st.integers(1, 60), st.integers(0, 999), st.sampled_from([10, 100, 1000]))
def test_thresholds_cost_no_more_than_the_docs_say(name, positives, negatives, seed, count):
    difference, bound = differences(name, count, *drawn(positives, negatives, seed))
    assert difference <= bound + 1e-12


@pytest.mark.slow
def test_the_docs_have_the_largest_differences_that_were_seen():
    """Of 300 draws of each kind: few positives cost the average precision two digits."""
    page = (Path(__file__).parents[2] / "docs" / "results" / "thresholds.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
    assert [row[0] for row in rows] == ["5", "50", "500"]
    for positives, *written in rows:
        draws = [drawn(int(positives), 1000, seed) for seed in range(300)]
        columns = [("auroc", 1000), ("average-precision", 1000), ("average-precision", 10_000)]
        hits = np.array([y.numpy()[(-s[:, 1].numpy()).argsort()] for s, y in draws])
        above, places = hits.cumsum(axis=1), np.arange(1, hits.shape[1] + 1)
        exact = {
            "auroc": 1 - (hits * (places - above)).sum(axis=1) / (int(positives) * 1000),
            "average-precision": (hits * above / places).sum(axis=1) / int(positives),
        }
        for (name, count), largest in zip(columns, written, strict=True):
            metric = METRICS[name](Predicted("classes", 2, count))
            found = max(abs(of_all(metric, *d) - value) for d, value in zip(draws, exact[name], strict=True))
            assert f"{found:.2g}" == largest


AVERAGES = ["micro", "macro", "weighted"]


@pytest.mark.parametrize("of", KINDS)
@pytest.mark.parametrize("average", AVERAGES)
def test_means_of_f1_are_scikit_learns_pooled_and_by_client(of, average):
    """Of two classes too, where ``f1`` by itself is that of class 1."""
    kind, size = KINDS[of]
    metric = METRICS["f1"](Predicted(kind, size, THRESHOLDS), average)
    scores, targets = predictions(kind, size, without=[0] if size == 4 else ())
    states = []
    for client in (slice(0, 50), slice(50, 390), slice(390, 400)):
        s, y = scores[client], targets[client]
        states.append(metric.batch(s, y))
        assert metric.value(states[-1]) == pytest.approx(f1_by_sklearn(s, y, average))
    pooled = added({"state": state} for state in states)["state"]
    assert metric.value(pooled) == pytest.approx(f1_by_sklearn(scores, targets, average))


def f1_by_sklearn(scores, targets, average):
    said = (scores >= 0.5).long() if targets.dim() == 2 else scores.argmax(1)
    return sk.f1_score(targets.numpy(), said.numpy(), average=average, zero_division=np.nan)


def test_a_background_is_in_no_mean_of_f1():
    """Confusion by hand, of classes 0 to 2: TP 3 and 1, FP 0 and 2, FN 1 and 2 of classes 1 and 2."""
    total = np.array([[5, 0, 1], [0, 3, 1], [2, 0, 1]])
    of = {
        "": (6 / 7 + 1 / 3) / 2,
        "micro": 8 / 13,
        "macro": (6 / 7 + 1 / 3) / 2,
        "weighted": (4 * 6 / 7 + 3 * 1 / 3) / 7,
    }
    for average, expected in of.items():
        metric = METRICS["f1"](Predicted("classes", 3, background=True), average)
        assert metric.value(total) == pytest.approx(expected)
        assert metric.values(total).shape == ((1,) if average in ("micro", "weighted") else (2,))
    assert math.isnan(METRICS["f1"](Predicted("classes", 3), "weighted").value(np.zeros((3, 3), np.int64)))


@pytest.mark.parametrize("name", ["f1", "dice"])
def test_another_mean_is_refused(name):
    with pytest.raises(ValueError, match="micro, macro or weighted after the colon, or nothing"):
        METRICS[name](Predicted("classes", 3), "mean")


def test_a_specificity_is_between_0_and_1():
    for argument in ["", "1", "0", "-0.5", "nan", "high"]:
        with pytest.raises(
            ValueError, match="a specificity between 0 and 1 after a colon: sensitivity-at:0.95"
        ):
            METRICS["sensitivity-at"](Predicted("classes", 2), argument)


def r2_exactly(y, s):
    """The mean over numbers of 1 - sum (y - s)^2 / sum (y - mean)^2, in fractions."""
    found = []
    for column, predicted in zip(y.T.tolist(), s.T.tolist(), strict=True):
        truth, said = list(map(Fraction, column)), list(map(Fraction, predicted))
        mean = sum(truth) / len(truth)
        errors = sum((t - p) ** 2 for t, p in zip(truth, said, strict=True))
        found.append(1 - errors / sum((t - mean) ** 2 for t in truth))
    return float(sum(found) / len(found))


def test_r2_is_exact_however_small_the_deviation_is_beside_the_mean():
    """Of y = 1e7 + (0, 1, 2), a client each, it was undefined."""
    for scale in [1e-20, 1.0, 1e7, 1e30]:
        for offset in [0.0, 1.0, 1e6, 1e9]:
            rng = np.random.default_rng(5)
            y = (rng.normal(size=(300, 2)) + offset) * scale
            s = y + rng.normal(size=y.shape) * scale
            metric = made("r2", "numbers", 2)
            cuts = [slice(0, 1), slice(1, 100), slice(100, 300)]
            total = added(
                {"state": metric.batch(torch.from_numpy(s[a]), torch.from_numpy(y[a]))} for a in cuts
            )["state"]
            assert metric.value(total) == pytest.approx(r2_exactly(y, s), rel=1e-13)


@pytest.mark.parametrize("of", [0.5, -1e300, math.nan, math.inf])
def test_a_state_that_no_examples_have_does_not_stop_the_server(of):
    metric = made("r2", "numbers", 1)
    state = metric.batch(*(torch.zeros(3, 1, dtype=torch.float64),) * 2)
    for row in range(len(state)):
        changed = state.copy()
        changed[row] = of
        assert not metric.value(changed) > 1


def test_a_constant_target_and_a_single_one_have_no_r2():
    metric = made("r2", "numbers", 1)
    y = torch.full((5, 1), 1e6 + 0.1, dtype=torch.float64)
    assert math.isnan(of_all(metric, y + 1, y))
    assert math.isnan(of_all(metric, y[:1] + 1, y[:1]))


REFUSED = [
    ("spearman-corr-coef", "numbers", "SpearmanCorrCoef's state 'preds' is a list of all examples"),
    ("pearson-corr-coef", "numbers", "PearsonCorrCoef's state 'mean_x' is not reduced by a sum"),
    ("calibration-error", "classes", "MulticlassCalibrationError's state 'confidences' is a list"),
    ("stat-scores", "classes", "MulticlassStatScores does not say whether higher is better"),
    ("confusion-matrix", "classes", "MulticlassConfusionMatrix does not say whether higher is better"),
]


@pytest.mark.parametrize(("name", "kind", "told"), REFUSED)
def test_metrics_whose_states_do_not_add_are_refused(name, kind, told):
    predicted = Predicted(kind, 3)
    with pytest.raises(ValueError, match=told):
        TorchMetric(predicted, class_named(name, predicted))


def test_torchmetrics_by_name_are_those_of_the_problem():
    names = [class_named("cohen-kappa", Predicted(*of)).__name__ for of in (("classes", 2), ("classes", 3))]
    assert names == ["BinaryCohenKappa", "MulticlassCohenKappa"]
    assert class_named("cohen-kappa", Predicted("numbers", 1)) is None
    scores, targets = predictions("classes", 4)
    metric = any_metric("cohen-kappa", "classes", 4)
    expected = sk.cohen_kappa_score(targets.numpy(), scores.argmax(1).numpy())
    assert of_all(metric, scores, targets) == pytest.approx(expected, abs=1e-6)


def test_too_few_examples_for_torchmetrics_have_no_value():
    """Its R2Score raises for fewer than two."""
    metric = any_metric("r2-score", "numbers", 1)
    one = torch.ones(1, 1, dtype=torch.float64)
    assert math.isnan(of_all(metric, one, one))
    assert math.isnan(metric.value(metric.zeros()))


def test_directions_and_ranges():
    lower = {name for name, metric in METRICS.items() if not metric.higher_is_better}
    assert lower == {"ece", "rmse"}
    assert METRICS["r2"].range == (-math.inf, 1)
    assert Metric.range == (0, 1)


def test_a_score_on_a_threshold_is_predicted_positive_by_it():
    """So says `Curve`, whose thresholds the report shows: here 1 - 2e-9, 1/2 and 2e-9."""
    state = METRICS["auroc"](Predicted("classes", 2, 3)).batch(
        torch.tensor([[0.5, 0.5]], dtype=torch.float64), torch.tensor([1])
    )
    found = curve(state[0])
    assert found.threshold[2] == 0.5
    assert found.tp.tolist() == [0, 0, 1, 1, 1]


def test_a_label_is_predicted_from_a_probability_of_exactly_a_half_on():
    """Labels 0 and 1 of two examples: a half of what is there, and of what is not."""
    scores = torch.tensor([[0.5, 0.5], [0.4999999, 0.5000001]], dtype=torch.float64)
    truth = torch.tensor([[1, 0], [1, 1]])
    found = made("f1", "labels", 2).batch(scores, truth)
    assert found.tolist() == [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]
