"""Which round is kept, and what a choice on the held-out cases is worth: halves choose for each other."""

import json

import numpy as np
import pandas as pd
import pytest
from flwr.app import MetricRecord
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from clients import Classification
from fedbn_flower import UserError
from fedbn_flower.core.ground.columns import HALVES
from fedbn_flower.extensions.patience import CrossFitting
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.tasks import task_of
from fedbn_flower.results.progress import summary_table
from fedbn_flower.results.run_reader import Run
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.inputs import local_task
from strategies import PhaseReport
from tests.fedbn_flower.records.helpers import info, result
from tests.fedbn_flower.results.html_page import page
from tests.fedbn_flower.results.test_cases import BINARY, TEN, Sites
from tests.fedbn_flower.results.test_supernodes import run_app

NOISY = {"client_lr": 0.3, "local_epochs": 2, "batch_size": 32, "strategy": "fedavg"}
"""So that the best round need not be the last one."""
LOCALLY = {**BINARY, **NOISY, "eval_data": "local"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        {"client": "fedbn", "eval_model": "local", "metrics": "none"},
        {"client": "silobn", "evaluate_every": 2, "rounds": 5},
        {"client": "shared", "groups": (np.arange(200) // 4, -1 - np.arange(200) // 4)},
    ],
)
def test_each_half_is_of_the_round_that_the_other_chose(run, captured, keys):
    """Against the predictions of runs of so many rounds, by scikit-learn."""
    chosen = {**LOCALLY, "metrics": "auroc", "thresholds": 10_000, "rounds": 4, "seed": 3} | keys
    output = run(**chosen, best="cross-fitted")
    inputs = captured[-1].inputs
    evaluated = [r for r in range(1, chosen["rounds"] + 1) if r % chosen.get("evaluate_every", 1) == 0]
    evaluated = sorted({*evaluated, chosen["rounds"]})
    runs = {r: run(**chosen | {"rounds": r}) for r in evaluated}
    tables = {r: plain.predictions for r, plain in runs.items()}
    by = "accuracy" if chosen["metrics"] == "none" else "auroc"

    def of(table, half):
        rows = {p: task_of(inputs, p).evaluation[half].rows for p in (0, 1)}
        return pd.concat([table[(table.site == str(p)) & table.id.isin(rows[p])] for p in rows])

    def value(cases):
        if by == "auroc":
            return roc_auc_score(cases.target, cases.score)
        return accuracy_score(cases.target, cases.score > 0.5)

    found = output.summary["cross-fitted"]
    best = {half: max(evaluated, key=lambda r: (value(of(tables[r], half)), -r)) for half in HALVES}
    assert found["rounds"] == best
    assert found["by"] == by
    first, second = HALVES
    cases = pd.concat([of(tables[best[first]], second), of(tables[best[second]], first)])
    assert sorted(cases.id) == list(range(200))  # no case is given up, and none counts twice
    whose = {None: (cases, found["pooled"] or found["mean"])}
    whose |= {p: (cases[cases.site == p], found["clients"][p]) for p in "01"}
    for those, metrics in whose.values():
        assert metrics["loss"] == pytest.approx(log_loss(those.target, those.score), rel=1e-5)
        assert metrics["accuracy"] == pytest.approx(accuracy_score(those.target, those.score > 0.5))
        if by == "auroc":
            assert metrics["auroc"] == pytest.approx(roc_auc_score(those.target, those.score), abs=5e-3)
    mean = np.mean([found["clients"][p]["loss"] for p in "01"])
    assert found["client-mean"]["loss"] == pytest.approx(mean)
    kept = max(evaluated, key=lambda r: (value(tables[r]), -r))
    assert output.summary["best-round"] == kept
    pd.testing.assert_frame_equal(output.predictions, tables[kept])
    names = [
        n for n in pd.read_csv(output.folder / "metrics.csv").columns if n in ("train-loss", "global-loss")
    ]
    same = pd.read_csv(runs[chosen["rounds"]].folder / "metrics.csv")
    pd.testing.assert_frame_equal(pd.read_csv(output.folder / "metrics.csv")[names], same[names])


@pytest.fixture
def captured(monkeypatch):
    """The federations that are made."""
    found, made = [], Federation.__init__

    def noted(self, *arguments, **keywords):
        made(self, *arguments, **keywords)
        found.append(self)

    monkeypatch.setattr(Federation, "__init__", noted)
    return found


def test_halves_are_disjoint_whole_and_even(configured):
    iid = {"num_clients": 3, "partition": "iid", "best": "cross-fitted", "client": "shared"}
    for keys in ({"eval_data": "local"}, {"eval_data": "global"}):
        inputs = inputs_of(configured(**iid, **keys))
        for client in range(3):
            evaluation, y = task_of(inputs, client).evaluation, inputs.dataset.test.columns["y"]
            first, second = (evaluation[half].rows for half in HALVES)
            assert sorted([*first, *second]) == sorted(evaluation["test"].rows)
            shared = task_of(inputs, 0).evaluation["half-1"] is evaluation["half-1"]  # evaluated once for all
            assert shared == (client == 0 or keys["eval_data"] == "global")
            counts = [np.bincount(y[rows], minlength=10) for rows in (first, second)]
            assert abs(counts[0] - counts[1]).max() <= 1
    other = inputs_of(configured(**iid, **keys, seed=1))
    assert not np.array_equal(task_of(other, 0).evaluation[HALVES[0]].rows, first)


def test_groups_are_in_one_half(run, captured):
    units = np.arange(200) // 5
    run(**LOCALLY, groups=(units, -1 - units), client="shared", rounds=1, best="cross-fitted")
    inputs = captured[-1].inputs
    units = inputs.dataset.test.units
    found = [
        {unit for p in (0, 1) for unit in units[task_of(inputs, p).evaluation[half].rows].tolist()}
        for half in HALVES
    ]
    assert not found[0] & found[1]
    assert len(found[0] | found[1]) == 40


def test_the_chosen_round_looks_too_good_and_the_cross_fitted_one_does_not():
    """Rounds that are all alike: of 100 cases, right with probability 0.7 in each of 20 rounds.

    A run that goes on after round 10 finds the same.
    """
    rng, problem = np.random.default_rng(0), Classification()
    as_chosen, cross_fitted = [], []
    for _ in range(100):
        halves, best = CrossFitting(info(), problem), 0.0
        for server_round in range(1, 21):
            right = rng.binomial(50, 0.7, 2)
            metrics = {"half-1-accuracy": right[0] / 50, "half-2-accuracy": right[1] / 50}
            metrics |= {f"{half}-loss": 1.0 for half in HALVES} | {f"{half}-examples": 50 for half in HALVES}
            report = PhaseReport(metrics={0: MetricRecord(metrics)})
            looked_at = result(server_round, metrics, evaluate=report, splits="test")
            halves.look_at(looked_at)
            if server_round == 10:
                resumed = CrossFitting(info(), problem)
                resumed.restore(halves.state())
            elif server_round > 10:
                resumed.look_at(looked_at)
            best = max(best, right.sum() / 100)
        assert resumed.summary() == halves.summary()
        as_chosen.append(best)
        cross_fitted.append(halves.summary()["mean"]["accuracy"])
    error = np.std(cross_fitted) / np.sqrt(100)
    assert abs(np.mean(cross_fitted) - 0.7) < 3 * error
    assert np.mean(as_chosen) == pytest.approx(0.783, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["aggregated", "local"])
def test_at_real_sites_it_is_what_a_simulation_finds(configured, finished, tmp_path, model):
    keys = {"best": "cross-fitted", "rounds": 3, "client": "fedbn", "num_clients": 2, "metrics": "auroc"}
    keys |= {"eval_model": model, "eval_data": "local", **NOISY}
    run_app(
        configured(**keys, run_dir=str(tmp_path / "sites")), Sites(configured(**keys), tmp_path / "state")
    )
    finished(tmp_path / "here", **keys)
    files = (tmp_path / name / "summary.json" for name in ("sites", "here"))
    found, expected = (json.loads(file.read_text()) for file in files)
    assert found["cross-fitted"] == expected["cross-fitted"]
    assert found["best-round"] == expected["best-round"]


def test_a_site_with_its_own_data_halves_its_own(configured, tmp_path, write_site):
    config = configured(best="cross-fitted", client="fedbn", num_clients=2)
    write_site(config, 1, tmp_path / "site")
    task = local_task(config, 1, {"data-path": str(tmp_path / "site")})
    first, second = (task.evaluation[half].rows for half in HALVES)
    assert sorted([*first, *second]) == task.evaluation["test"].rows.tolist()
    assert abs(len(first) - len(second)) <= 10


@pytest.mark.slow
def test_what_was_chosen_by_what_is_said(run, captured):
    methods = pytest.importorskip("fedbn_flower.study.methods").methods
    model_card = pytest.importorskip("fedbn_flower.study.methods").model_card
    output = run(**LOCALLY, client="fedbn", rounds=4, best="cross-fitted", metrics="auroc", seed=3)
    shown, found = page(output.folder), output.summary["cross-fitted"]
    kept = output.summary["best-round"]
    assert (
        f"The saved model is that of round {kept}, of the best AUROC on the held-out cases."
        in shown.text["p"]
    )
    first, second = found["rounds"]["half-1"], found["rounds"]["half-2"]
    words = f"The first half chose round {first}, in which the second is reported, and the second chose"
    assert any(f"{words} round {second}," in text for text in shown.text["p"])
    read = Run.read(output.folder)
    told = summary_table(captured[-1].config, read.summary)
    assert "pooled, cross-fitted" in list(told.columns[0].cells)
    assert f"| all sites, cross-fitted | {found['pooled']['auroc']:.3f} | " in model_card(read)
    assert "The round was chosen on the held-out cases, so its own metrics are too good." in methods(read)
    rows = {row[0]: row for row in shown.rows if len(row) == 7}
    loss = rows["all clients' examples pooled"][rows["model"].index("loss, cross-fitted")]
    assert loss == f"{found['pooled']['loss']:.4g}"


@pytest.mark.slow
def test_validation_keeps_the_best_round_without_an_early_end(run):
    keys = {**LOCALLY, "client": "fedbn", "val_fraction": 0.3, "rounds": 4, "seed": 3}
    output = run(**keys, best="validation")
    values = output.history["accuracy"].tolist()
    assert output.summary["best-round"] == 1 + int(np.argmax(values))
    assert output.summary["rounds"] == 4
    same = run(**keys, patience=4)
    for name in ("model.safetensors", "predictions.parquet"):
        assert (output.folder / name).read_bytes() == (same.folder / name).read_bytes()
    assert "of the best accuracy on the validation share." in " ".join(page(output.folder).text["p"])


HALVED = "with best 'cross-fitted'"
TARGET = {"target": "accuracy=0.9"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"best": "validation"}, "best: 'validation' is not allowed; expected 'auto' or 'cross-fitted' with"),
        ({"val_fraction": 0.2}, f"val-fraction: 0.2 is not allowed; expected 0 {HALVED}, which needs no"),
        ({"patience": 3}, f"patience: 3 is not allowed; expected 0 {HALVED}: it goes by a validation set"),
        ({"stop_at_target": True, **TARGET}, f"stop-at-target: true is not allowed; expected false {HALVED}"),
        ({"fraction_evaluate": 0.0}, "best: 'cross-fitted' is not allowed; expected 'auto' or 'validation'"),
        (
            {"decide_by": "server", "client": "shared"},
            f"decide-by: 'server' is not allowed; expected another one {HALVED}: halves of",
        ),
        *(
            (
                {"best": best, "val_fraction": share, "dp": "client", "dp_noise": 1.0, "dp_delta": 1e-3},
                f"best: '{best}' is not allowed; expected 'auto'",
            )
            for best, share in (("cross-fitted", 0.0), ("validation", 0.2))
        ),
    ],
)
def test_mistakes_are_one_line(refusal, keys, said):
    assert refusal(**{"best": "cross-fitted", **keys}).lower().startswith(said.lower())


X = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
NUMBERS = {"data": (X[:40], X[:40, :1], X[40:], X[40:, :1]), "num_clients": 2, "eval_data": "local"}


@pytest.mark.parametrize(("keys", "by", "sign"), [(LOCALLY, "accuracy", 1), (NUMBERS, "loss", -1)])
def test_the_mean_over_clients_may_decide(run, keys, by, sign):
    output = run(**keys, client="fedbn", rounds=3, best="cross-fitted", decide_by="mean", seed=3)
    found = output.summary["cross-fitted"]
    assert found["by"] == by
    for half, chosen in found["rounds"].items():
        assert chosen == 1 + (sign * output.history[f"client-mean-{half}-{by}"]).argmax()
    assert output.summary["best-round"] == 1 + (sign * output.history[f"client-mean-{by}"]).argmax()


def test_a_client_with_one_test_example_cannot_be_halved(run):
    x, y, x_test, y_test = TEN["data"]
    data = {"a": (x[:50], y[:50]), "b": (x[50:100], y[50:100])}
    test = {"a": (x_test[:20], y_test[:20]), "b": (x_test[20:21], y_test[20:21])}
    with pytest.raises(UserError) as error:
        run(data=data, test=test, best="cross-fitted", client="shared")
    assert str(error.value) == (
        "best: 'cross-fitted' is not allowed; expected another one: 1 is the number of test examples of "
        "client 1"
    )
