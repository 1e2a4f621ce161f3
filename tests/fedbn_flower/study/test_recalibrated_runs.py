"""Runs with ``recalibrate``: against fits by hand to the cases of the validation share."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit, softmax
from scipy.stats import binomtest
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score, roc_curve

from clients import FedAvgClient
from fedbn_flower import UserError
from fedbn_flower.results.progress import summary_table
from fedbn_flower.results.run_reader import Run
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from tests.quick import diagonal_quick

from ..results.html_page import page
from ..results.test_cases import PRIVATE, TEN, Sites, X, Y
from ..results.test_supernodes import run_app

BINARY = {"data": (X[:300], Y[:300], X[300:], Y[300:]), "num_clients": 2, "partition": "iid"}
NO_SHARE = "no site has a validation share of its own"
SHARE = {"eval_data": "local", "val_fraction": 0.4}


def fitted_by_hand(method, score, target):
    """The parameter, and a function of the probability of class 1."""
    if method == "temperature":
        z = logit(score)

        def loss(t):
            return log_loss(target, expit(z / t))

        found = minimize_scalar(loss, bounds=(0.1, 10), method="bounded", options={"xatol": 1e-8}).x
        return found, lambda new: expit(logit(new) / found)
    if method == "isotonic":
        fitted, least = IsotonicRegression(out_of_bounds="clip").fit(score, target), 1 / (len(score) + 2)
        return None, lambda new: np.clip(fitted.predict(new), least, 1 - least)
    rates, found, thresholds = roc_curve(target, score, drop_intermediate=False)
    i = np.argmax(np.round(found - rates, 12))
    t = (thresholds[i] + thresholds[i + 1]) / 2
    return t, lambda new: new * (1 - t) / (new * (1 - t) + (1 - new) * t)


def area(cases):
    """Scikit-learn's, of what is the same but for rounding."""
    return roc_auc_score(cases.target, cases.recalibrated.round(9))


@pytest.mark.parametrize(
    ("keys", "method"),
    diagonal_quick(
        [{}, {"eval_model": "local", "client": "fedbn"}, {"folds": 3, "fold": 2}],
        ["temperature", "isotonic", "threshold"],
    ),
)
def test_each_sites_scores_are_those_of_a_fit_by_hand(run, method, keys):
    """The cases of the validation share are those that the same run without a final test keeps."""
    groups = {"groups": (np.arange(300) // 2, -1 - np.arange(100) // 2)} if "folds" in keys else {}
    chosen = BINARY | SHARE | keys | groups | {"rounds": 2}
    result = run(**chosen, recalibrate=method, metrics="auroc", thresholds=1000)
    of_fit, cases = run(**chosen, final_test=False).predictions, result.predictions
    summary = result.summary["recalibrated"]
    assert summary["method"] == method
    assert [*cases.columns[-4:]] == ["score", "recalibrated", "fold", "seed"]
    if groups:
        assert not {*of_fit.group} & {*cases.group}
    for site, of_site in cases.groupby("site"):
        known = of_fit[of_fit.site == site]
        parameter, apply = fitted_by_hand(method, known.score, known.target)
        np.testing.assert_allclose(of_site.recalibrated, apply(of_site.score), rtol=1e-4, atol=1e-6)
        found = summary["clients"][site]
        if parameter is not None:
            assert found[method] == pytest.approx(parameter, rel=1e-4)
        assert found["loss"] == pytest.approx(log_loss(of_site.target, of_site.recalibrated))
        assert found["auroc"] == pytest.approx(area(of_site), abs=5e-3)
    pooled = summary["pooled"]
    assert pooled["loss"] == pytest.approx(log_loss(cases.target, cases.recalibrated))
    assert pooled["accuracy"] == accuracy_score(cases.target, cases.recalibrated >= 0.5)
    assert pooled["auroc"] == pytest.approx(area(cases), abs=5e-3)
    right = int((cases.target == (cases.recalibrated >= 0.5)).sum())
    if not groups:
        ends = binomtest(right, len(cases)).proportion_ci(0.95, "exact")
        assert summary["intervals"]["pooled"]["accuracy"] == pytest.approx([ends.low, ends.high])
    mean = np.mean([client["loss"] for client in summary["clients"].values()])
    assert summary["client-mean"]["loss"] == pytest.approx(mean)


@pytest.mark.slow
def test_all_else_stays_as_it_is(run, tmp_path):
    folders = [
        run(
            **BINARY, **SHARE, eval_model="local", metrics="auroc", recalibrate=how, run_dir=tmp_path / how
        ).folder
        for how in ("none", "temperature")
    ]
    assert len({(folder / "model.safetensors").read_bytes() for folder in folders}) == 1
    plain, other = (pd.read_csv(folder / "metrics.csv") for folder in folders)
    names = [n for n in plain.columns if "seconds" not in n and n != "bytes-received"]
    pd.testing.assert_frame_equal(plain[names], other[names], check_exact=True)
    assert {n for n in other.columns if n not in plain.columns} == {
        *("recalibrated-temperature", "recalibrated-loss", "recalibrated-accuracy", "recalibrated-auroc"),
        *(f"client-mean-recalibrated-{n}" for n in ("loss", "accuracy", "auroc")),
        *(f"pooled-recalibrated-{n}" for n in ("loss", "accuracy", "auroc")),
    }
    tables = [pd.read_parquet(folder / "predictions.parquet") for folder in folders]
    pd.testing.assert_frame_equal(tables[0], tables[1].drop(columns="recalibrated"))
    assert not any("recalibrate" in line for line in warnings_of(folders[1]))
    before, after = (json.loads((folder / "summary.json").read_text()) for folder in folders)
    assert "recalibrated" not in before
    for key in ("mean", "pooled", "client-mean", "clients", "intervals"):
        assert before[key] == after[key]


@pytest.mark.slow
def test_targets_of_the_test_set_do_not_reach_the_fit(run):
    x, y, x_test, y_test = BINARY["data"]
    found = []
    for targets in (y_test, 1 - y_test):
        Path("data").mkdir(exist_ok=True)
        for name, rows, outcome in (("train", x, y), ("test", x_test, targets)):
            frame = pd.DataFrame(rows, columns=list("abcd"))
            frame["ill"], frame["site"] = np.where(outcome, "yes", "no"), np.arange(len(rows)) % 2
            frame.to_csv(f"data/{name}.csv", index=False)
        keys = {"label_column": "ill=no|yes", "partition": "natural:site", "num_clients": 2, **SHARE}
        result = run(dataset="data", **keys, recalibrate="temperature")
        found.append(result.predictions.set_index(["site", "id"]))
    assert (found[0].target != found[1].target).all()
    pd.testing.assert_series_equal(found[0].recalibrated, found[1].recalibrated)


def test_several_classes_have_a_temperature(run):
    result = run(**TEN, **SHARE, recalibrate="temperature")
    table, summary = result.predictions, result.summary["recalibrated"]
    columns = [f"recalibrated-{i}" for i in range(10)]
    assert [*table.columns[-12:-2]] == columns
    plain = table[[f"score-{i}" for i in range(10)]].to_numpy()
    for site, of_site in table.groupby("site"):
        temperature = summary["clients"][site]["temperature"]
        expected = softmax(np.log(plain[of_site.index]) / temperature, axis=1)
        np.testing.assert_allclose(of_site[columns], expected, rtol=1e-9)
    loss = log_loss(table.target, table[columns].to_numpy(), labels=range(10))
    assert summary["mean"]["loss"] == pytest.approx(loss)
    assert summary["intervals"]["pooled"].keys() == {"loss", "accuracy"}
    assert "Recalibrated by site" in page(result.folder).text["h2"]


def test_labels_have_one_each_by_name(run):
    targets = np.stack([Y, 1 - Y], 1).astype(np.float32)
    data = (X[:300], targets[:300], X[300:], targets[300:])
    keys = {"num_clients": 2, "partition": "iid", **SHARE, "problem": "multi-label", "metrics": "auroc"}
    for method in ("temperature", "threshold"):
        result = run(data=data, **keys, recalibrate=method)
        client = result.summary["recalibrated"]["clients"]["0"]
        assert [key for key in client if key.startswith(method)] == [f"{method}-0", f"{method}-1"]
        table = result.predictions
        for label in "01":
            area = roc_auc_score(table[f"target-{label}"], table[f"recalibrated-{label}"])
            assert 0.5 < area <= 1
        right = [(table[f"recalibrated-{i}"] >= 0.5) == (table[f"target-{i}"] == 1) for i in "01"]
        assert result.summary["recalibrated"]["mean"]["accuracy"] == pytest.approx(np.mean(right))


@pytest.mark.slow
def test_the_report_has_it_beside_the_plain_one(run):
    result = run(**BINARY, **SHARE, recalibrate="threshold", metrics="auroc", run_dir="report")
    shown = page(result.folder)
    rows, text = {row[0]: row for row in shown.rows}, (result.folder / "report.html").read_text()
    found = result.summary["recalibrated"]
    header = next(row for row in shown.rows if "accuracy, recalibrated" in row)
    assert header[:3] == ["model", "threshold", "AUROC"]
    assert f"{found['clients']['0']['threshold']:.3g}" in [row[1] for row in shown.rows]
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert "Each site&#x27;s scores are shifted so that its own threshold (Youden) becomes 0.5" in text
    assert "Shifted scores are no risks" in text
    cases = result.predictions
    missed = int(((cases.recalibrated < 0.5) & (cases.target == 1)).sum())
    assert rows["all sites pooled"][4] == str(missed)  # the last such table is of recalibrated scores
    risks = run(**BINARY, **SHARE, recalibrate="temperature")
    shown = page(risks.folder)
    assert "Calibration, recalibrated" in shown.text["figcaption"]
    assert not any("Shifted scores" in text for text in shown.text["p"])


@pytest.mark.slow
@pytest.mark.parametrize(("allowed", "model"), diagonal_quick([True, False], ["aggregated", "local"]))
def test_at_real_sites_sums_travel_and_cases_do_not(configured, tmp_path, allowed, model):
    keys = {**SHARE, "rounds": 1, "recalibrate": "temperature", "client": "fedbn", "num_clients": 2}
    keys |= {"metrics": "f1", "eval_model": model}
    config = configured(**keys, run_dir=str(tmp_path / "sites"))
    sites = Sites(config, tmp_path / "state", predictions=allowed)
    run_app(config, sites)
    assert "held-out-cases" not in sites.records
    simulate(Federation(configured(**keys)), tmp_path / "here", None)
    found, expected = (
        json.loads((tmp_path / name / "summary.json").read_text())["recalibrated"]
        for name in ("sites", "here")
    )
    del expected["intervals"]
    assert found == expected
    files = sorted((tmp_path / "state").rglob("client-*.parquet"))
    assert len(files) == (2 if allowed else 0)
    for site, path in enumerate(files):
        table = pd.read_parquet(path)
        whole = pd.read_parquet(tmp_path / "here/predictions.parquet")
        of_site = whole[whole.site == str(site)].reset_index(drop=True)
        pd.testing.assert_frame_equal(table, of_site)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"val_fraction": 0.0}, "'none' without val-fraction: it is fitted on a validation share"),
        ({"final_test": False}, "'none' with final-test false: it is applied to test cases"),
        ({"eval_data": "global"}, f"'none' with eval-data 'global': {NO_SHARE}"),
        ({"eval_data": "auto", "client": "shared"}, f"'none' without eval-data 'local': {NO_SHARE}"),
        ({"fraction_evaluate": 0.0}, "'none' with fraction-evaluate 0: no client evaluates"),
        (PRIVATE, "'none' with dp 'client': what is fitted to single examples would be sent"),
    ],
)
def test_where_it_cannot_be_it_is_one_line(run, keys, said):
    with pytest.raises(UserError) as error:
        run(**{**BINARY, "strategy": "fedavg", **SHARE, **keys, "recalibrate": "temperature"})
    assert str(error.value) == f"recalibrate: 'temperature' is not allowed; expected {said}"


def test_what_has_no_scores_is_one_line(run):
    numbers = (X[:300], X[:300, :1], X[300:], X[300:, :1])
    with pytest.raises(UserError) as error:
        run(**BINARY | {"data": numbers}, **SHARE, recalibrate="temperature")
    assert str(error.value) == (
        "recalibrate: 'temperature' is not allowed; expected 'none' with numbers: there are no scores of "
        "classes or labels"
    )
    with pytest.raises(UserError, match="expected 'none' or 'temperature' with 10 classes, not two"):
        run(**TEN, **SHARE, recalibrate="isotonic")
    masks = np.zeros((20, 8, 8), np.uint8)
    masks[:, :4] = 1
    data = (np.random.default_rng(0).random((20, 1, 8, 8)).astype(np.float32), masks)
    keys = {"model": "unet", "num_clients": 2, "partition": "iid", **SHARE}
    with pytest.raises(
        UserError, match="recalibrate: 'temperature' .* expected 'none' with masks: there are"
    ):
        run(data=(*data, *data), **keys, recalibrate="temperature")


def test_a_site_that_can_fit_nothing_is_named(run, tmp_path):
    rows = [f"{i % 37},{'ab'[i % 2]},{i % 4 // 2 * (i % 2)}" for i in range(240)]
    (tmp_path / "t.csv").write_text("\n".join(["age,site,label", *rows]))
    keys = {"label_column": "label", "partition": "natural:site", "rounds": 1}
    result = run(dataset=str(tmp_path / "t.csv"), **SHARE, **keys, recalibrate="isotonic")
    said = page(result.folder).text["p"]
    assert "Scores stay as they are at a: validation cases of one class only." in said


def test_few_validation_examples_are_warned_of(run):
    few = run(**BINARY, **SHARE | {"val_fraction": 0.2}, recalibrate="temperature", rounds=1).folder
    assert [line for line in warnings_of(few) if "recalibrate" in line] == [
        "recalibrate: 2 of 2 clients have fewer than 50 validation examples, or than 10 outside the most "
        "frequent class (client 0 has 30 and 11), so what they fit is uncertain"
    ]


def test_of_many_cases_few_events_are_warned_of_and_a_mean_says_who_has_none(run, configured, tmp_path):
    """Turin's 194 cases to fit on have 4 events, and none of its test cases is one."""
    rng = np.random.default_rng(0)
    for site, events in (("lyon", 250), ("turin", 10)):
        (tmp_path / "t" / site).mkdir(parents=True)
        for part, count, ill in (("train", 500, events), ("test", 40, 20 * (site == "lyon"))):
            frame = pd.DataFrame({"a": rng.random(count), "ill": (np.arange(count) < ill) + 0})
            frame.to_csv(tmp_path / "t" / site / f"{part}.csv", index=False)
    keys = SHARE | {"label_column": "ill", "metrics": "auroc", "recalibrate": "temperature", "rounds": 1}
    folder = run(dataset=str(tmp_path / "t"), **keys).folder
    assert [line for line in warnings_of(folder) if line.startswith("recalibrate")] == [
        "recalibrate: 1 of 2 clients have fewer than 50 validation examples, or than 10 outside the most "
        "frequent class (client turin has 194 and 4), so what they fit is uncertain"
    ]
    rows = page(folder).rows
    (both,) = (i for i, row in enumerate(rows) if "AUROC, recalibrated" in row)
    mean = next(row for row in rows[both:] if row[0] == "mean over clients")
    assert sum("(1 of 2 has none)" in cell for cell in mean) == 2
    terminal = summary_table(configured(), Run.read(folder).summary)
    models, areas = ([*column.cells] for column in terminal.columns if column.header in ("model", "auroc"))
    of_models = dict(zip(models, areas, strict=True))
    assert of_models["mean over examples, recalibrated"].endswith(" (1 of 2 has none)")


def warnings_of(folder):
    return json.loads((folder / "config.json").read_text())["warnings"]


class Silent(FedAvgClient):
    """Evaluates, and says nothing of single cases."""

    def held_out_metrics(self, config):
        return super().held_out_metrics({k: v for k, v in config.items() if k != "recalibrate"})


def test_a_run_in_which_no_client_can_says_so(run, caplog):
    result = run(**BINARY, **SHARE, client=f"{__name__}:Silent", recalibrate="temperature")
    assert "recalibrated" not in result.summary
    said = "recalibrate: no client said what it predicts of its cases, so none has done so"
    assert said in [record.message for record in caplog.records]
