"""A model that is no better than a constant: errors and areas by hand."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from fedbn_flower.study.constant import no_better_than_mean, no_better_than_usual, turned_at_sites

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


def test_a_run_says_it_at_its_end(run, caplog):
    x, y = np.zeros((200, 2), np.float32), np.resize(np.float32([0, 1, 5, 6.5]), (200, 1))
    keys = {"num_clients": 2, "partition": "iid", "model": "linear", "strategy": "fedavg", "client": "shared"}
    with caplog.at_level("WARNING", "flwr.fedbn"):
        run(data=(x[:120], y[:120], x[120:], y[120:]), **keys, rounds=1, client_lr=0.001, eval_data="local")
    assert any(" no less than those of a constant: R² is " in line for line in caplog.messages)
