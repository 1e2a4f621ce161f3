"""A model that is no better than a constant: errors and areas by hand."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from fedbn_flower.results.run_reader import Run
from fedbn_flower.study.constant import (
    no_better_than_mean,
    no_better_than_usual,
    scores_are_estimates,
    turned_at_sites,
)

from ..results.written import summary_of, write_run

TARGETS = pd.Series([0.0, 0, 0, 4, 10] * 8)
"""Their variance is 15.36, and the mean distance from their median 2.8."""
RIGHT = "of all held-out cases are right"


@pytest.mark.parametrize(
    ("scores", "squared", "absolute"),
    [
        ([4, 4, 4, 4, 4], -0.09, 3.6),
        ([9, 9, 9, 5, -1], -3.75, 7.8),
        ([0, 0, 0, 4, 0], None, None),  # R² is -0.30, but the mean absolute error 2
        ([0, 0, 0, 2, 5], None, None),
    ],
)
def test_errors_that_a_constant_has_too_are_said(scores, squared, absolute):
    found = list(no_better_than_mean(TARGETS, pd.Series(scores * 8), "mg"))
    assert found == [
        "the errors of 'mg' of all held-out cases are no less than those of a constant: R² is "
        f"{squared:.2f}, and the mean absolute error {absolute}, that of their median 2.8"
        for _ in filter(None, [squared])
    ]


def test_as_many_right_as_by_the_usual_class_is_said_if_ranks_are_poor():
    no = pd.DataFrame({"target": np.repeat([0, 1], [60, 40]), "score": np.resize([0.1, 0.2], 100)})
    no["predicted"] = 0
    assert list(no_better_than_usual(no, ["alive", "dead"])) == [
        f"60.0% {RIGHT}, and 60.0% would be if 'alive' were always predicted; the AUROC is 0.50"
    ]
    ranked = no.assign(score=np.linspace(0, 0.4, 100))
    assert not list(no_better_than_usual(ranked, ["alive", "dead"]))
    assert not list(no_better_than_usual(no.assign(predicted=[*[0] * 60, 1, *[0] * 39]), []))
    assert not list(no_better_than_usual(no.assign(target=[*[0] * 96, *[1] * 4]), []))
    three = no.assign(target=np.resize([2, 0, 1, 2], 100), predicted=2).drop(columns="score")
    three = three.assign(**{f"score-{k}": 1 / 3 for k in range(3)})
    assert list(no_better_than_usual(three, [])) == [
        f"50.0% {RIGHT}, and 50.0% would be if '2' were always predicted; the AUROC is 0.50"
    ]


@pytest.mark.parametrize("said", [True, False])
def test_a_site_whose_classes_are_coded_the_other_way_round_is_named(said):
    """Of 40 cases each, half of them events: its AUROC is 0, or 0.475, of which the deviation is 0.092."""
    target, score = np.resize([0, 1], 40), np.arange(40) / 40
    right = np.argsort(np.argsort(target * 40 + np.arange(40), kind="stable")) / 40
    wrong = (1 - right) if said else score[::-1]
    sites = {"lyon": right, "turin": right, "porto": wrong}
    cases = pd.concat([pd.DataFrame({"site": k, "target": target, "score": of}) for k, of in sites.items()])
    area = roc_auc_score(target, wrong)
    assert (
        list(turned_at_sites(cases))
        == [
            f"the AUROC is below 0.5 at porto ({area:.2f}), and above at most other sites: look at whether "
            "the classes, or a column, are coded the other way round there"
        ]
        * said
    )
    assert not list(turned_at_sites(cases.assign(target=1 - cases.target)))  # so are most


def test_the_slices_of_a_patient_are_one_case_of_the_variance():
    """Of 12 patients, half of them events, with 40 slices each: the AUROC at porto is 1/3."""
    patients = {
        "lyon": [0] * 6 + [1] * 6,
        "turin": [0] * 6 + [1] * 6,
        "porto": [1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0],
    }
    rows = [(k, y, i / 12, f"{k}-{i}") for k, ys in patients.items() for i, y in enumerate(ys)]
    cases = pd.DataFrame(rows, columns=["site", "target", "score", "group"]).loc[lambda t: t.index.repeat(40)]
    assert list(turned_at_sites(cases.assign(group=None)))  # as if all were independent
    assert not list(turned_at_sites(cases))
    turned = cases.assign(target=cases.target.where(cases.site != "porto", (cases.score < 0.5) * 1))
    (line,) = turned_at_sites(turned)
    assert line.startswith("the AUROC of mean scores by group is below 0.5 at porto (0.00), and above")


@pytest.mark.parametrize(
    ("keys", "are"),
    [
        ({}, True),
        ({"problem": "regression"}, True),
        ({"problem": "own.py:Quantile"}, False),
        ({"loss": "own.py:Pinball"}, False),
        ({"dataset": "own.py:rates"}, False),
        ({"problem": "own.py:Least", "rmse": 1.0}, True),
    ],
)
def test_only_scores_that_estimate_their_targets_are_compared_with_a_constant(tmp_path, keys, are):
    rows = [{"round": 1, "loss": 1.0, **{k: v for k, v in keys.items() if k == "rmse"}}]
    config = {"problem": "auto", "loss": "auto", "dataset": "t.csv", **keys}
    folder = write_run(tmp_path / "r", summary_of([0.5]))
    run = Run(folder, config, Run.read(folder).summary, rows)
    assert scores_are_estimates(run) == are


def test_a_run_says_it_at_its_end(run, caplog):
    x, y = np.zeros((200, 2), np.float32), np.resize(np.float32([0, 1, 5, 6.5]), (200, 1))
    keys = {"num_clients": 2, "partition": "iid", "model": "linear", "strategy": "fedavg", "client": "shared"}
    with caplog.at_level("WARNING", "flwr.fedbn"):
        run(data=(x[:120], y[:120], x[120:], y[120:]), **keys, rounds=1, client_lr=0.001, eval_data="local")
    assert any(" no less than those of a constant: R² is " in line for line in caplog.messages)
